// A js-libp2p node that does what it is told: one JSON object a line on stdin, an answer on stdout.
//
// A request is {id, do, ...}; its answer {id, ...} or {id, error}. The first line says which peer it
// is and where it listens. argv: the options as JSON {listen, serveRelay}. It ends with its stdin.
import { randomBytes } from 'node:crypto'
import { createInterface } from 'node:readline'
import { createLibp2p } from 'libp2p'
import { noise } from '@chainsafe/libp2p-noise'
import { yamux } from '@chainsafe/libp2p-yamux'
import { circuitRelayServer, circuitRelayTransport } from '@libp2p/circuit-relay-v2'
import { dcutr } from '@libp2p/dcutr'
import { identify } from '@libp2p/identify'
import { ping } from '@libp2p/ping'
import { tcp } from '@libp2p/tcp'
import { multiaddr } from '@multiformats/multiaddr'

const STEP_MS_MAX = 20_000
const PIECE_BYTES = 32 * 1024
const { listen, serveRelay } = JSON.parse(process.argv[1])
const say = (answer) => process.stdout.write(JSON.stringify(answer) + '\n')
const node = await createLibp2p({
  addresses: { listen },
  transports: [tcp(), circuitRelayTransport()],
  connectionEncrypters: [noise()],
  streamMuxers: [yamux()],
  services: {
    dcutr: dcutr(),
    identify: identify(),
    ping: ping(),
    ...(serveRelay ? { relay: circuitRelayServer() } : {})
  }
})
const identified = {} // what each peer said of itself, by its id
node.addEventListener('peer:identify', ({ detail }) => {
  identified[detail.peerId] = {
    agent: detail.agentVersion,
    protocols: detail.protocols,
    addresses: detail.listenAddrs.map(String),
    observed: String(detail.observedAddr)
  }
})
const streams = [] // opened ones, kept open
const found = (peer) => node.getConnections().filter((each) => String(each.remotePeer) === peer)
const describe = (each) => ({
  peer: String(each.remotePeer),
  address: String(each.remoteAddr),
  direct: each.direct,
  direction: each.direction,
  encryption: each.encryption,
  limited: each.limits != null,
  multiplexer: each.multiplexer,
  status: each.status
})

const actions = {
  addresses: () => node.getMultiaddrs().map(String),
  connections: () => node.getConnections().map(describe),
  dial: async ({ address }, signal) => describe(await node.dial(multiaddr(address), { signal })),
  echo: async ({ peer, protocol, size }, signal) => {
    await sendAndGetBack(await found(peer)[0].newStream(protocol, { signal }), randomBytes(size), signal)
  },
  identified: ({ peer }) => identified[peer] ?? null,
  open: async ({ peer, protocol }, signal) => {
    const options = { signal, runOnLimitedConnection: true }
    streams.push(await found(peer)[0].newStream(protocol, options))
    return streams.at(-1).protocol
  },
  ping: async ({ peer, anew }, signal) => {
    const [connection] = found(peer)
    if (connection.limits == null || anew) return node.services.ping.ping(connection.remotePeer, { signal })
    // The service does not use a limited connection that there is: it dials again.
    const options = { signal, runOnLimitedConnection: true }
    const began = Date.now()
    await sendAndGetBack(await connection.newStream('/ipfs/ping/1.0.0', options), randomBytes(32), signal)
    return Date.now() - began
  },
  serveEcho: async ({ protocol }) => {
    await node.handle(protocol, async (stream) => {
      for await (const data of stream) await send(stream, data)
      await stream.close()
    })
  }
}

// Sends all of it, as fast as the other side takes it.
async function send (stream, data) {
  if (!stream.send(data)) await stream.onDrain()
}

async function sendAndGetBack (stream, sent, signal) {
  const arrived = []
  let size = 0
  const back = new Promise((resolve, reject) => {
    stream.addEventListener('message', ({ data }) => {
      arrived.push(data.subarray())
      size += data.byteLength
      if (size >= sent.length) resolve()
    })
    stream.addEventListener('close', () => reject(new Error(`closed after ${size} bytes`)))
  })
  for (let at = 0; at < sent.length; at += PIECE_BYTES) await send(stream, sent.subarray(at, at + PIECE_BYTES))
  await back
  await stream.close({ signal })
  if (!sent.equals(Buffer.concat(arrived))) throw new Error('other bytes came back')
}

say({ peer: String(node.peerId), addresses: actions.addresses() })
for await (const line of createInterface({ input: process.stdin })) {
  const { id, do: name, ...words } = JSON.parse(line)
  Promise.resolve()
    .then(() => actions[name](words, AbortSignal.timeout(STEP_MS_MAX)))
    .then((answer = null) => say({ id, answer }), (error) => say({ id, error: `${error.name}: ${error.message}` }))
}
process.exit(0)
