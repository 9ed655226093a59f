"""Objects of a bucket by AWS's own client: `list` prints names and SHA-256 digests, `spoil` changes a byte of each file."""

import hashlib
import sys

import boto3

endpoint, command = sys.argv[1:]
client = boto3.client(
    "s3", endpoint_url=endpoint, region_name="us-east-1", aws_access_key_id="id", aws_secret_access_key="secret"
)
if command == "create":
    client.create_bucket(Bucket="models")
for page in client.get_paginator("list_objects_v2").paginate(Bucket="models"):
    for entry in page.get("Contents", []):
        key = entry["Key"]
        content = client.get_object(Bucket="models", Key=key)["Body"].read()
        if command == "list":
            print(hashlib.sha256(content).hexdigest(), key)
        if command == "spoil" and "/files/" in key:
            client.put_object(Bucket="models", Key=key, Body=content[:-1] + bytes([content[-1] ^ 1]))
