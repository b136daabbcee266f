// A js-libp2p node that does what it is told: one JSON object a line on stdin, an answer on stdout.
//
// A request is {id, do, ...}; its answer {id, ...} or {id, error}. The first line says which peer it
// is and where it listens. argv: the options as JSON {listen, serveRelay, punch}. It ends with its stdin.
import { connect } from 'node:net'
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
const { listen, serveRelay, punch } = JSON.parse(process.argv[1])
const say = (answer) => process.stdout.write(JSON.stringify(answer) + '\n')
// It tells others no public address that nobody has confirmed, unless it is told to.
const announce = punch ? listen.filter((each) => !each.includes('p2p-circuit')) : []
const node = await createLibp2p({
  addresses: { listen, announce },
  transports: [tcp(), circuitRelayTransport()],
  connectionEncrypters: [noise()],
  streamMuxers: [yamux()],
  services: {
    identify: identify(),
    ping: ping(),
    ...(punch ? { dcutr: dcutr() } : {}),
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
// The open connections to a peer, direct ones first.
const found = (peer) => node.getConnections()
  .filter((each) => String(each.remotePeer) === peer && each.status === 'open')
  .sort((one, other) => Number(other.direct) - Number(one.direct))
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
  handle: ({ protocol, path }) => {
    return node.handle(protocol, (stream) => pipe(stream, path), { runOnLimitedConnection: true })
  },
  identified: ({ peer }) => identified[peer] ?? null,
  open: async ({ peer, protocol, path }, signal) => {
    pipe(await found(peer)[0].newStream(protocol, { signal, runOnLimitedConnection: true }), path)
  },
  ping: ({ peer }, signal) => node.services.ping.ping(found(peer)[0].remotePeer, { signal })
}

// Copies both ways between a stream and the local socket at a path.
function pipe (stream, path) {
  const socket = connect(path)
  stream.addEventListener('message', ({ data }) => socket.write(data.subarray()))
  stream.addEventListener('remoteCloseWrite', () => socket.end())
  stream.addEventListener('close', () => socket.destroy())
  socket.on('data', (data) => {
    if (stream.send(data)) return
    socket.pause()
    stream.onDrain().then(() => socket.resume(), () => socket.destroy())
  })
  socket.on('end', () => stream.close().catch(() => {}))
  socket.on('error', (error) => stream.abort(error))
}

say({ peer: String(node.peerId), addresses: actions.addresses() })
for await (const line of createInterface({ input: process.stdin })) {
  const { id, do: name, ...words } = JSON.parse(line)
  Promise.resolve()
    .then(() => actions[name](words, AbortSignal.timeout(STEP_MS_MAX)))
    .then((answer = null) => say({ id, answer }), (error) => say({ id, error: `${error.name}: ${error.message}` }))
}
process.exit(0)
