// Compares the results of one or more runs of the suite with the list of the tests that are expected to fail. A test
// passes if it does so in one of the runs. A test of the kind "check" asks what a cache does, and no answer is wrong.
import fs from 'node:fs'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const [suite, list, ...runs] = process.argv.slice(2)
const load = async name => (await import(pathToFileURL(path.resolve(suite, 'tests', name)))).default
const suites = [...await load('index.mjs')]
// A part of the suite that older editions add when they run.
if (fs.existsSync(path.join(suite, 'tests/surrogate-control.mjs'))) suites.push(await load('surrogate-control.mjs'))
const outcomes = runs.map(run => JSON.parse(fs.readFileSync(run)))
const expected = new Set(fs.readFileSync(list, 'utf8').split('\n').filter(line => line && !line.startsWith('#')))
const count = {}
let isAsExpected = true
for (const test of suites.flatMap(suite => suite.tests).filter(test => !test.browser_only)) {
  const kind = test.kind ?? 'required'
  const passed = outcomes.some(outcome => outcome[test.id] === true)
  count[kind] ??= { passed: 0, all: 0 }
  count[kind].all += 1
  count[kind].passed += passed
  if (kind === 'check') continue
  if (passed === expected.delete(test.id)) {
    isAsExpected = false
    const why = passed ? `passes, but is in ${list}` : `${outcomes.at(-1)[test.id]?.[1] ?? 'has no result'}: ${test.name}`
    console.error(`${test.id} (${kind}): ${why}`)
  }
}
for (const id of expected) {
  isAsExpected = false
  console.error(`${id}: is in ${list}, but no test of the suite`)
}
const parts = Object.entries(count).map(([kind, { passed, all }]) => `${passed} of ${all} ${kind}`)
console.log(`${parts.join(', ')} tests passed`)
process.exitCode = isAsExpected ? 0 : 1
