// The Node client's own configuration of jest, for a checkout of its repository that is somewhere else.
const { OPENAI_NODE: checkout } = process.env;

module.exports = {
  rootDir: checkout,
  testEnvironment: 'node',
  setupFiles: [`${__dirname}/examples-exist.js`],
  transform: { '^.+\\.(t|j)sx?$': [require.resolve('@swc/jest'), { sourceMaps: 'inline' }] },
  moduleNameMapper: { '^openai$': '<rootDir>/src/index.ts', '^openai/(.*)$': '<rootDir>/src/$1' },
  modulePathIgnorePatterns: ['<rootDir>/ecosystem-tests/', '<rootDir>/dist/', '<rootDir>/packages/'],
  haste: { forceNodeFilesystemAPI: true },
  watchman: false,
};
