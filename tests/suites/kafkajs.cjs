// kafkajs against a cluster, as steps that each pass or fail: node tests/suites/kafkajs.cjs HOST:PORT,... [word]
// Its npm package has no tests of its own, so these are ours. Three brokers are wanted: the reassignment moves
// between them. Exit 0 if nothing failed. Who may call: `scripts/suites/kafkajs`, which finds the package.
const assert = require('assert')
const { randomBytes } = require('crypto')
const { Kafka, CompressionTypes, ConfigResourceTypes, logLevel } = require('kafkajs')

const WAIT_MS = 60000
const mark = randomBytes(4).toString('hex')
const name = kind => `${kind}-${mark}`
const numbers = (from, to) => Array.from({ length: to - from }, (_, i) => from + i)
const records = (from, to) => numbers(from, to).map(n => ({ key: `k${n}`, value: `${n}` }))
const sorted = values => [...values].sort((a, b) => a - b)

const kafka = new Kafka({
  clientId: 'suite', brokers: process.argv[2].split(','), logLevel: logLevel.NOTHING, requestTimeout: 30000,
})
const admin = kafka.admin()
const steps = {}

async function until(what, holds) {
  const deadline = Date.now() + WAIT_MS
  for (;;) {
    const found = await holds()
    if (found) return found
    assert(Date.now() < deadline, `waited too long until ${what}`)
    await new Promise(resolve => setTimeout(resolve, 50))
  }
}

async function withTopic(kind, numPartitions = 3, configEntries = []) {
  const topic = name(kind)
  await admin.createTopics({ topics: [{ topic, numPartitions, replicationFactor: 3, configEntries }], waitForLeaders: true })
  for (const broker of process.argv[2].split(',')) {
    const asking = new Kafka({ brokers: [broker], logLevel: logLevel.NOTHING }).admin() // each hears of it by itself
    await asking.connect()
    await until('every broker knows the topic', () => asking.fetchTopicMetadata({ topics: [topic] }).catch(() => false))
    await asking.disconnect()
  }
  return topic
}

async function withProducer(settings, use) {
  const producer = kafka.producer(settings)
  await producer.connect()
  try {
    return await use(producer)
  } finally {
    await producer.disconnect()
  }
}

const produce = (topic, messages, more = {}) =>
  withProducer({}, producer => producer.send({ topic, messages, ...more }))

// A member of a group in an object: what it read and what it was assigned.
class Member {
  static async start(topic, groupId, settings = {}, run = {}) {
    const member = new Member()
    member.seen = []
    member.assigned = []
    member.joins = 0
    member.consumer = kafka.consumer({
      groupId, sessionTimeout: 10000, heartbeatInterval: 500, rebalanceTimeout: 10000, maxWaitTimeInMs: 200, ...settings,
    })
    member.consumer.on(member.consumer.events.GROUP_JOIN, ({ payload }) => {
      member.joins += 1
      member.assigned = Object.values(payload.memberAssignment).flat()
    })
    await member.consumer.connect()
    await member.consumer.subscribe({ topics: [topic], fromBeginning: true })
    await member.consumer.run({
      eachMessage: async ({ partition, message }) => member.seen.push({ partition, ...message }), ...run,
    })
    return member
  }

  get values() {
    return this.seen.map(m => Number(m.value))
  }

  stop() {
    return this.consumer.disconnect()
  }
}

async function readAll(topic, count, settings = {}) {
  const member = await Member.start(topic, `${topic}-reader-${randomBytes(3).toString('hex')}`, settings)
  try {
    await until(`${count} records are read`, () => member.seen.length >= count)
    return member.seen
  } finally {
    await member.stop()
  }
}

// The cluster and its topics ---------------------------------------------------------------

steps.describe_cluster = async () => {
  const { brokers, controller, clusterId } = await admin.describeCluster()
  assert(brokers.length >= 3 && brokers.some(b => b.nodeId === controller) && clusterId)
}

steps.topics = async () => {
  const topic = await withTopic('made', 2)
  assert((await admin.listTopics()).includes(topic))
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
  assert.deepStrictEqual(topics[0].partitions.map(p => [p.replicas.length, p.isr.length]), [[3, 3], [3, 3]])
  assert.strictEqual(await admin.createTopics({ topics: [{ topic }] }), false) // it exists
  await assert.rejects(
    admin.createTopics({ topics: [{ topic: name('many'), replicationFactor: 99 }] }), e => JSON.stringify(e).includes('INVALID_REPLICATION_FACTOR'),
  )
}

steps.partitions = async () => {
  const topic = await withTopic('grown', 1)
  await admin.createPartitions({ topicPartitions: [{ topic, count: 4 }] })
  await until('all show', async () => (await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length === 4)
}

steps.configs = async () => {
  const topic = await withTopic('configured')
  const resource = { type: ConfigResourceTypes.TOPIC, name: topic }
  await admin.alterConfigs({ resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: '3600000' }] }] })
  const { resources } = await admin.describeConfigs({ resources: [{ ...resource, configNames: ['retention.ms'] }] })
  assert.strictEqual(resources[0].configEntries[0].configValue, '3600000')
  await assert.rejects(admin.alterConfigs({ resources: [{ ...resource, configEntries: [{ name: 'retention.ms', value: 'x' }] }] }), { type: 'INVALID_CONFIG' })
}

steps.delete_topics = async () => {
  const topic = await withTopic('gone')
  await admin.deleteTopics({ topics: [topic] })
  await until('it is gone', async () => !(await admin.listTopics()).includes(topic))
}

steps.auto_creation = async () => {
  const topic = name('auto')
  await produce(topic, records(0, 10))
  assert.strictEqual((await readAll(topic, 10)).length, 10)
}

// Produce and consume -----------------------------------------------------------------------

for (const acks of [-1, 0, 1]) {
  steps[`produce_acks_${acks === -1 ? 'all' : acks}`] = async () => {
    const topic = await withTopic(`acks${acks}`)
    const messages = records(0, 500).map(m => ({ ...m, headers: { h: 'one' } }))
    await produce(topic, messages, { acks })
    const seen = await readAll(topic, 500)
    assert.deepStrictEqual(sorted(seen.map(m => Number(m.value))), numbers(0, 500))
    assert(seen.every(m => m.key.toString() === `k${m.value}` && m.headers.h.toString() === 'one'))
  }
}

steps.produce_gzip = async () => {
  const topic = await withTopic('gzip')
  await produce(topic, records(0, 500), { compression: CompressionTypes.GZIP })
  assert.strictEqual(new Set((await readAll(topic, 500)).map(m => `${m.value}`)).size, 500)
}

steps.produce_idempotent = async () => {
  const topic = await withTopic('idempotent', 1)
  await withProducer({ idempotent: true, maxInFlightRequests: 1 }, async producer => {
    for (const n of numbers(0, 50)) await producer.send({ topic, messages: [{ value: `${n}` }] })
  })
  assert.deepStrictEqual((await readAll(topic, 50)).map(m => Number(m.value)), numbers(0, 50))
}

steps.too_large = async () => {
  const topic = await withTopic('large', 1, [{ name: 'max.message.bytes', value: '10000' }])
  await assert.rejects(produce(topic, [{ value: 'x'.repeat(20000) }]), e => JSON.stringify(e).includes('MESSAGE_TOO_LARGE'))
  await produce(topic, [{ value: 'x'.repeat(9000) }])
  assert.strictEqual((await readAll(topic, 1))[0].value.length, 9000)
}

steps.large_records = async () => {
  const topic = await withTopic('big', 1)
  for (let n = 0; n < 4; n++) await produce(topic, [{ value: `${n}`.repeat(900000) }])
  const seen = await readAll(topic, 4, { maxBytesPerPartition: 100000 }) // the first batch comes always
  assert.deepStrictEqual(seen.map(m => m.value.length), [900000, 900000, 900000, 900000])
}

steps.offsets_of_topic = async () => {
  const topic = await withTopic('offsets', 2)
  await produce(topic, numbers(0, 10).map(n => ({ value: `${n}`, partition: 0, timestamp: `${1000000 + n}` })))
  const ends = await admin.fetchTopicOffsets(topic)
  assert.deepStrictEqual(ends.map(o => [o.partition, o.low, o.high]).sort(), [[0, '0', '10'], [1, '0', '0']])
  const found = await admin.fetchTopicOffsetsByTimestamp(topic, 1000004)
  assert.strictEqual(found.find(o => o.partition === 0).offset, '4')
}

steps.delete_records = async () => {
  const topic = await withTopic('shortened', 1)
  await produce(topic, records(0, 20))
  await admin.fetchTopicOffsets(topic) // else kafkajs knows no leader of it
  await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '15' }] })
  assert.strictEqual((await admin.fetchTopicOffsets(topic))[0].low, '15')
  assert.deepStrictEqual((await readAll(topic, 5)).map(m => Number(m.value)), numbers(15, 20))
}

steps.pattern = async () => {
  const topic = await withTopic('pattern', 1)
  await produce(topic, records(0, 5))
  const member = await Member.start(new RegExp(`^pattern-${mark}$`), name('by-pattern'))
  await until('it reads', () => member.seen.length === 5)
  await member.stop()
}

steps.seek_pause_resume = async () => {
  const topic = await withTopic('sought', 1)
  await produce(topic, records(0, 50))
  const member = await Member.start(topic, name('seeks'))
  await until('all is read', () => member.seen.length === 50)
  member.consumer.pause([{ topic }])
  await produce(topic, records(50, 60))
  await new Promise(resolve => setTimeout(resolve, 1000)) // what does not come cannot be waited for
  assert.strictEqual(member.seen.length, 50)
  member.consumer.resume([{ topic }])
  await until('the rest comes', () => member.seen.length === 60)
  member.consumer.seek({ topic, partition: 0, offset: '40' })
  await until('it reads again', () => member.seen.length === 80)
  await member.stop()
}

// Groups ------------------------------------------------------------------------------------

steps.group_shares = async () => {
  const topic = await withTopic('shared', 6)
  const group = name('shared')
  await produce(topic, records(0, 600))
  const one = await Member.start(topic, group, {}, { autoCommitThreshold: 1 })
  await until('the first has all', () => one.assigned.length === 6 && new Set(one.values).size === 600)
  const two = await Member.start(topic, group, {}, { autoCommitThreshold: 1 })
  await until('both share', () => one.assigned.length === 3 && two.assigned.length === 3)
  assert.deepStrictEqual(sorted([...one.assigned, ...two.assigned]), numbers(0, 6))
  await produce(topic, records(600, 1200))
  const all = () => new Set([...one.values, ...two.values])
  await until('all is read', () => all().size === 1200)
  assert(two.seen.length > 0)
  await one.stop()
  await until('the second has all', () => two.assigned.length === 6)
  await produce(topic, records(1200, 1300))
  await until('it reads all', () => all().size === 1300)
  await two.stop()
  assert.strictEqual(one.seen.length + two.seen.length, 1300, 'something was read twice')
}

steps.group_of_five = async () => {
  const topic = await withTopic('five', 10)
  const members = await Promise.all(numbers(0, 5).map(() => Member.start(topic, name('five'))))
  await until('each has two', () => members.every(m => m.assigned.length === 2))
  assert.deepStrictEqual(sorted(members.flatMap(m => m.assigned)), numbers(0, 10))
  await Promise.all(members.slice(1).map(m => m.stop()))
  await until('one has all', () => members[0].assigned.length === 10)
  await members[0].stop()
}

steps.group_hears_of_partitions = async () => {
  const topic = await withTopic('grows', 1)
  const member = await Member.start(topic, name('grows'), { metadataMaxAge: 1000 })
  await until('it has one', () => member.assigned.length === 1)
  await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] })
  await until('it has three', () => member.assigned.length === 3)
  await member.stop()
}

steps.group_commits_by_hand = async () => {
  const topic = await withTopic('byhand', 1)
  const group = name('byhand')
  await produce(topic, records(0, 30))
  const member = await Member.start(topic, group, {}, { autoCommit: false })
  await until('all is read', () => member.seen.length === 30)
  await member.consumer.commitOffsets([{ topic, partition: 0, offset: '20', metadata: 'so far' }])
  await member.stop()
  const [{ partitions }] = await admin.fetchOffsets({ groupId: group, topics: [topic] })
  assert.deepStrictEqual([partitions[0].offset, partitions[0].metadata], ['20', 'so far'])
  const next = await Member.start(topic, group)
  await until('the rest is read', () => next.seen.length === 10)
  assert.deepStrictEqual(next.values, numbers(20, 30))
  await next.stop()
}

steps.group_batches = async () => {
  const topic = await withTopic('batches', 1)
  const group = name('batches')
  await produce(topic, records(0, 100))
  const seen = []
  const eachBatch = async ({ batch, resolveOffset, heartbeat, commitOffsetsIfNecessary }) => {
    for (const message of batch.messages) {
      seen.push(Number(message.value))
      resolveOffset(message.offset)
      await heartbeat()
    }
    await commitOffsetsIfNecessary()
  }
  const member = await Member.start(topic, group, {}, { eachMessage: undefined, eachBatch })
  await until('all is read', () => seen.length === 100)
  await member.stop()
  assert.strictEqual((await admin.fetchOffsets({ groupId: group, topics: [topic] }))[0].partitions[0].offset, '100')
}

steps.group_admin = async () => {
  const topic = await withTopic('administered', 1)
  const groupId = name('administered')
  await produce(topic, records(0, 10))
  const member = await Member.start(topic, groupId)
  await until('all is read', () => member.seen.length === 10)
  const { groups } = await admin.describeGroups([groupId])
  assert.deepStrictEqual([groups[0].state, groups[0].protocol, groups[0].members.length], ['Stable', 'RoundRobinAssigner', 1])
  assert((await admin.listGroups()).groups.some(g => g.groupId === groupId && g.protocolType === 'consumer'))
  await assert.rejects(admin.deleteGroups([groupId]), e => JSON.stringify(e).includes('NON_EMPTY_GROUP'))
  await member.stop()
  const offset = async () => (await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions[0].offset
  await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: '7' }] })
  assert.strictEqual(await offset(), '7')
  await admin.resetOffsets({ groupId, topic, earliest: true })
  assert.strictEqual(await offset(), '-2') // kafkajs commits the special offset itself
  await admin.deleteGroups([groupId])
  assert(!(await admin.listGroups()).groups.some(g => g.groupId === groupId))
}

// Transactions ------------------------------------------------------------------------------

const transactional = (id, use) =>
  withProducer({ transactionalId: name(id), idempotent: true, maxInFlightRequests: 1 }, use)

steps.transaction_commit_and_abort = async () => {
  const topic = await withTopic('transactions')
  await transactional('t1', async producer => {
    for (const [from, end] of [[0, 'commit'], [100, 'abort'], [200, 'commit']]) {
      const transaction = await producer.transaction()
      await transaction.send({ topic, messages: records(from, from + 50) })
      await transaction[end]()
    }
  })
  const committed = await readAll(topic, 100)
  assert.deepStrictEqual(sorted(committed.map(m => Number(m.value))), [...numbers(0, 50), ...numbers(200, 250)])
  assert.strictEqual((await readAll(topic, 150, { readUncommitted: true })).length, 150)
}

steps.transaction_with_offsets = async () => {
  const topic = await withTopic('consumed', 1)
  const groupId = name('consumed')
  const offset = async () => (await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions[0].offset
  const send = (transaction, o) =>
    transaction.sendOffsets({ consumerGroupId: groupId, topics: [{ topic, partitions: [{ partition: 0, offset: o }] }] })
  await transactional('t2', async producer => {
    let transaction = await producer.transaction()
    await send(transaction, '5')
    await transaction.commit()
    await until('the offset shows', async () => (await offset()) === '5')
    transaction = await producer.transaction()
    // The coordinator may still be ending the one before, and kafkajs does not try this request again.
    await until('the last transaction has ended', () =>
      send(transaction, '9').then(() => true, e => { if (e.type !== 'CONCURRENT_TRANSACTIONS') throw e }))
    await transaction.abort()
    assert.strictEqual(await offset(), '5')
  })
}

steps.transaction_fenced = async () => {
  const topic = await withTopic('fenced', 1)
  await transactional('t3', async older => {
    const lost = await older.transaction()
    await lost.send({ topic, messages: records(0, 5) })
    await transactional('t3', async newer => {
      const transaction = await newer.transaction()
      await transaction.send({ topic, messages: records(10, 15) })
      await transaction.commit()
    })
    await assert.rejects(lost.send({ topic, messages: records(5, 6) }), e => /INVALID_PRODUCER_EPOCH|PRODUCER_FENCED/.test(e.type))
  })
  assert.deepStrictEqual((await readAll(topic, 5)).map(m => Number(m.value)), numbers(10, 15))
}

steps.reassignment = async () => {
  const topic = await withTopic('moved', 1)
  await produce(topic, records(0, 100))
  const ids = (await admin.describeCluster()).brokers.map(b => b.nodeId).sort().slice(0, 2)
  await admin.alterPartitionReassignments({ topics: [{ topic, partitionAssignment: [{ partition: 0, replicas: ids }] }] })
  await until('nothing moves', async () => (await admin.listPartitionReassignments({})).topics.every(t => t.topic !== topic))
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
  assert.deepStrictEqual(topics[0].partitions[0].replicas, ids)
  assert.strictEqual((await readAll(topic, 100)).length, 100)
}

async function main() {
  await admin.connect()
  const failed = []
  let passed = 0
  for (const [step, run] of Object.entries(steps)) {
    if (!step.includes(process.argv[3] || '')) continue
    const started = Date.now()
    let why = ''
    try {
      await Promise.race([run(), new Promise((_, no) => setTimeout(no, 150000, new Error('150 s are over')).unref())])
      passed += 1
    } catch (error) {
      why = error.stack || `${error}`
      failed.push(step)
    }
    console.log(`${why ? 'FAIL' : 'pass'} ${step.padEnd(30)} ${((Date.now() - started) / 1000).toFixed(1)} s`)
    if (why) console.log(`    ${why.split('\n').slice(0, 6).join('\n    ')}`)
  }
  console.log(`${passed} passed, ${failed.length} failed ${failed.join(' ')}`.trim())
  process.exit(failed.length ? 1 : 0)
}

main()
