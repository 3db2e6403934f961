package session

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
)

// Labels separate the values that are derived from one secret.
const (
	labelJoin   = "hdmlp cluster 1: proof of a node"
	labelAccept = "hdmlp cluster 1: proof of node 0"
	labelUp     = "hdmlp cluster 1: node to node 0"
	labelDown   = "hdmlp cluster 1: node 0 to node"

	labelBinding = "EXPORTER-hdmlp-cluster"
)

// seal encrypts one direction of a stream. A key is used for one stream and direction only, so the
// frame's number serves as the nonce; a frame that was dropped, repeated or reordered does not
// open.
type seal struct {
	aead cipher.AEAD
	n    uint64
}

func newSeal(key []byte) *seal {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err) // keys are 32 bytes
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return &seal{aead: aead}
}

func (s *seal) nonce() []byte {
	nonce := make([]byte, s.aead.NonceSize())
	binary.LittleEndian.PutUint64(nonce, s.n)
	s.n++
	return nonce
}

func (s *seal) close(plain []byte) []byte { return s.aead.Seal(nil, s.nonce(), plain, nil) }

var errSeal = errors.New("a frame was modified in transit, or was sealed with another key")

func (s *seal) open(sealed []byte) ([]byte, error) {
	plain, err := s.aead.Open(sealed[:0], s.nonce(), sealed, nil)
	if err != nil {
		return nil, errSeal
	}
	return plain, nil
}
