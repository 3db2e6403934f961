// Package identity is how nodes of one job know each other, whatever protocol they speak: by the
// job's secret.
//
//   - Secret: what keys and proofs are derived from. It is never sent, nor is anything that guesses of it
//     could be tried on before the other side has proved that it knows it.
//   - Transcript: the proofs of a handshake, one per side. Each covers all that both sides have said, and, over TLS, a secret
//     of the TLS session, so that it cannot be replayed, reflected, or passed on by a third party between the two.
//   - DrawTLS and LoadTLS: TLS, of which certificates are the smaller part: TLS keeps others out, the proof tells who it is.
//   - Backoff: the pauses between attempts to reach a node.
//
// Each protocol (cluster, exchange) has messages and labels of its own, and brings them to a
// Transcript. What connections may cost before the proof is admission's. The package keeps no state
// and starts no goroutine.
package identity

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
)

const (
	// MinSecret is how short a secret may be, in bytes.
	MinSecret = 16
	// NonceSize and ProofSize are in bytes.
	NonceSize = 32
	ProofSize = sha256.Size
)

// Secret is what the nodes of one job know, and nothing else does: MinSecret bytes or more, drawn
// at random.
type Secret []byte

// Derive returns a key, or a proof, of 32 bytes: HMAC-SHA256 under the secret of the label and the
// parts, each after its length. The label keeps apart what is derived for different purposes.
func (s Secret) Derive(label string, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, s)
	var length [8]byte
	write := func(p []byte) {
		binary.LittleEndian.PutUint64(length[:], uint64(len(p)))
		h.Write(length[:])
		h.Write(p)
	}
	write([]byte(label))
	for _, p := range parts {
		write(p)
	}
	return h.Sum(nil)
}

// Nonce draws what a side says once, in one handshake.
func Nonce() []byte {
	b := make([]byte, NonceSize)
	_, _ = rand.Read(b) // never fails
	return b
}

// Transcript is what two sides have said in a handshake, of which each then proves that it knows
// the secret. Who connected proves itself first, so that an unauthenticated client learns nothing,
// not even something to try guesses of the secret on.
//
// Said must hold a nonce of either side, and all that a side must not be able to pass off as
// something else. Every side and protocol has a label of its own.
type Transcript struct {
	Secret Secret
	Said   [][]byte
	// Binding is the connection's; nil without TLS.
	Binding []byte
}

// Proof is what the side with this label shows.
func (t Transcript) Proof(label string) []byte {
	parts := append([][]byte(nil), t.Said...)
	if t.Binding != nil {
		parts = append(parts, t.Binding)
	}
	return t.Secret.Derive(label, parts...)
}

// Proves reports whether proof is that of the side with this label, in constant time.
func (t Transcript) Proves(label string, proof []byte) bool {
	return hmac.Equal(proof, t.Proof(label))
}
