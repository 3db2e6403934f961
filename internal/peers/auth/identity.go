package auth

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
)

const (
	// MinSecret is the minimum length of a secret, in bytes.
	MinSecret = 16
	// NonceSize and ProofSize are lengths in bytes.
	NonceSize = 32
	ProofSize = sha256.Size
)

// Secret is the shared secret of the nodes of one job: at least MinSecret random bytes.
type Secret []byte

// Derive returns a key or proof of 32 bytes: HMAC-SHA256 under the secret of the label and the
// parts, each preceded by its length. The label separates what is derived for different purposes.
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

// Nonce returns random bytes that a side sends once, in one handshake.
func Nonce() []byte {
	b := make([]byte, NonceSize)
	_, _ = rand.Read(b) // never fails
	return b
}

// Transcript is what two sides have sent in a handshake, for which each then proves that it has the
// secret. The client proves itself first, so an unauthenticated client learns nothing, not even a
// value on which to test guesses of the secret.
//
// Said must contain a nonce of either side, and everything that a side must not be able to use in
// another context. Every side of every protocol has its own label.
type Transcript struct {
	Secret Secret
	Said   [][]byte
	// Binding is the connection's channel binding; nil without TLS.
	Binding []byte
}

// Proof returns the proof of the side with the label.
func (t Transcript) Proof(label string) []byte {
	parts := append([][]byte(nil), t.Said...)
	if t.Binding != nil {
		parts = append(parts, t.Binding)
	}
	return t.Secret.Derive(label, parts...)
}

// Proves reports, in constant time, whether proof is that of the side with the label.
func (t Transcript) Proves(label string, proof []byte) bool {
	return hmac.Equal(proof, t.Proof(label))
}
