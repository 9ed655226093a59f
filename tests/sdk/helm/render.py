"""Renders the Helm chart by Helm's own library, and holds it to the manifests of examples/deployment."""

import pathlib
import sys
import tomllib

import helm_python as helm
import yaml

root = pathlib.Path(sys.argv[1])
folder = str(root / "packaging/helm/mortise")
manifests = root / "examples/deployment/kubernetes"


def things(text):
    return {thing["kind"]: thing for thing in yaml.safe_load_all(text) if thing}


def rendered(**values):
    with helm.Chart.load(folder) as chart:
        files = chart.render(values, name="shop", namespace="models")
    found = {}
    for name, text in files.items():
        if name.endswith(".yaml"):
            found.update(things(text))
    return found


def refused(word, **values):
    try:
        rendered(**values)
    except helm.HelmError as error:
        assert word in str(error), error
        return
    raise AssertionError(f"{values} were taken")


def container(deployment):
    [only] = deployment["spec"]["template"]["spec"]["containers"]
    return only


findings = helm.lint(folder)
# A severity of 1 is advice.
assert not findings["errors"] and all(message["severity"] <= 1 for message in findings["messages"]), findings

usual = rendered()
assert set(usual) == {"Deployment", "Service", "ConfigMap", "PodDisruptionBudget"}, set(usual)
plain = things((manifests / "server.yaml").read_text())
pod, as_kustomized = (kind["Deployment"]["spec"]["template"]["spec"] for kind in (usual, plain))
for key in ("securityContext", "automountServiceAccountToken", "terminationGracePeriodSeconds"):
    assert pod[key] == as_kustomized[key], key
for key in ("args", "ports", "startupProbe", "livenessProbe", "readinessProbe", "lifecycle", "resources", "securityContext", "envFrom", "volumeMounts"):
    assert container(usual["Deployment"])[key] == container(plain["Deployment"])[key], key
selected = usual["Deployment"]["spec"]["selector"]["matchLabels"]
assert selected.items() <= usual["Deployment"]["spec"]["template"]["metadata"]["labels"].items()
assert usual["Service"]["spec"]["selector"] == selected == usual["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]
assert usual["Service"]["metadata"]["name"] == "shop-mortise"

settings = usual["ConfigMap"]["data"]["mortise.toml"]
assert tomllib.loads(settings) == tomllib.loads((manifests / "mortise.toml").read_text())

scaled = rendered(autoscaling={"enabled": True}, models={"existingClaim": "weights"}, settings="[server]\nport = 1\n")
assert "replicas" not in scaled["Deployment"]["spec"]
wanted = yaml.safe_load((manifests / "autoscaling.yaml").read_text())["spec"]
scaler = scaled["HorizontalPodAutoscaler"]["spec"]
for key in ("metrics", "behavior", "minReplicas", "maxReplicas"):
    assert scaler[key] == wanted[key], key
assert {"name": "models", "mountPath": "/models", "readOnly": True} in container(scaled["Deployment"])["volumeMounts"]
sums = [one["Deployment"]["spec"]["template"]["metadata"]["annotations"]["checksum/settings"] for one in (usual, scaled)]
assert sums[0] != sums[1]

kept = rendered(persistence={"existingClaim": "state"}, image={"repository": "example.com/mortise", "tag": "1"})
assert kept["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}
assert container(kept["Deployment"])["image"] == "example.com/mortise:1"
refused("one pod", persistence={"existingClaim": "state"}, replicas=2)
refused("replica", replica=2)

print(settings)
