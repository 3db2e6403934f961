// Package auth authenticates the nodes of one job to each other, by the job's secret, whatever
// protocol they use, and limits what connections may cost before that.
//
//   - Secret: the secret from which keys and proofs are derived. It is never sent, and nothing on
//     which guesses of it could be tested is sent before the other side has proved that it has it.
//   - Transcript: the proofs of a handshake, one per side. Each covers everything that both sides
//     have sent and, over TLS, the channel binding of the TLS session, so it cannot be replayed,
//     reflected, or relayed by a third party.
//   - DrawTLS and LoadTLS: TLS configurations. TLS keeps third parties out; the proof, not the
//     certificate, authenticates the peer.
//   - Backoff: the pauses between attempts to reach a node.
//   - Listener: the limits of unauthenticated connections.
//
// Each protocol (cluster, exchange) has its own messages and labels, and passes them to a
// Transcript.
//
// # Unauthenticated connections
//
// A Listener wraps another one. An accepted connection is pending until Conn.Admit. Each pending
// connection is limited in time and bytes, and their number is limited per address and in total. A
// connection over the limit replaces the oldest pending one of the address that has the most. So a
// flood ends its own connections: other addresses keep their few, and even a handshake from the
// flood's own address succeeds if it takes no longer than a full set of connections takes to
// arrive. Rejected: to refuse the newest connection, which lets the first to come keep all others
// out.
//
// A connection that was closed by the Listener still takes memory until what serves it has noticed
// and closed it as well. A flood may arrive faster than that, so the Listener accepts no more
// connections while too many are not closed yet. It does not decide what is admitted.
package auth
