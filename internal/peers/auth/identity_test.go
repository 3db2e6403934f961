package auth

import (
	"bytes"
	"encoding/hex"
	"testing"
)

var secret = Secret("a secret of the job, long enough")

// TestDerivedKeysDoNotChange: docs/FORMATS.md has the layout, and all nodes of a job must derive
// the same keys.
func TestDerivedKeysDoNotChange(t *testing.T) {
	for want, parts := range map[string][][]byte{
		"0cb9a198cb94397ef31680f4d54f41897af6b917a31b2cbd03e2f19f5ac463f6": nil,
		"90f05007b4c46207204b07e7057edfdb4e8ba6ed5edbea1c647327e17725ba98": {
			[]byte("nonce"),
			[]byte("other"),
		},
	} {
		if got := hex.EncodeToString(secret.Derive("label", parts...)); got != want {
			t.Errorf("of %q: %s, not %s", parts, got, want)
		}
	}
}

// TestDerivedKeysDiffer: by secret, by label, and by every part, its length and the number of
// parts.
func TestDerivedKeysDiffer(t *testing.T) {
	one, two := []byte("one"), []byte("two")
	keys := map[string]string{}
	for name, key := range map[string][]byte{
		"itself":         secret.Derive("label", one, two),
		"another secret": Secret("another secret, just as long").Derive("label", one, two),
		"another label":  secret.Derive("other", one, two),
		"another order":  secret.Derive("label", two, one),
		"a part less":    secret.Derive("label", one),
		"an empty part":  secret.Derive("label", one, two, nil),
		"another border": secret.Derive("label", []byte("onet"), []byte("wo")),
		"label and part": secret.Derive("labelone", nil, two),
	} {
		if len(key) != ProofSize {
			t.Errorf("%s: %d bytes", name, len(key))
		}
		if same, found := keys[string(key)]; found {
			t.Errorf("%s gives the same key as %s", name, same)
		}
		keys[string(key)] = name
	}
}

func TestNoncesAreRandom(t *testing.T) {
	one, two := Nonce(), Nonce()
	if len(one) != NonceSize || bytes.Equal(one, two) || bytes.Equal(one, make([]byte, NonceSize)) {
		t.Errorf("% x, % x", one, two)
	}
}

// TestProofIsBoundToItsTranscript: a proof is valid only for the secret, the side, the messages and
// the TLS session that it was made for.
func TestProofIsBoundToItsTranscript(t *testing.T) {
	said := [][]byte{Nonce(), Nonce()}
	here := Transcript{Secret: secret, Said: said, Binding: []byte("session")}
	proof := here.Proof("client")
	if !here.Proves("client", proof) {
		t.Fatal("a valid proof was refused")
	}
	for name, there := range map[string]Transcript{
		"another secret": {
			Secret:  Secret("another secret, just as long"),
			Said:    said,
			Binding: here.Binding,
		},
		"another nonce": {
			Secret:  secret,
			Said:    [][]byte{Nonce(), said[1]},
			Binding: here.Binding,
		},
		"another second nonce": {
			Secret:  secret,
			Said:    [][]byte{said[0], Nonce()},
			Binding: here.Binding,
		},
		"reflected": {
			Secret:  secret,
			Said:    [][]byte{said[1], said[0]},
			Binding: here.Binding,
		},
		"another TLS session": {Secret: secret, Said: said, Binding: []byte("another")},
		"no TLS":              {Secret: secret, Said: said},
	} {
		if there.Proves("client", proof) {
			t.Errorf("%s: the proof was accepted", name)
		}
	}
	changed := bytes.Clone(proof)
	changed[len(changed)-1] ^= 1
	for name, wrong := range map[string][]byte{
		"the other side's": here.Proof("server"), "changed": changed, "cut": proof[:ProofSize-1],
		"nothing": nil, "zeros": make([]byte, ProofSize),
	} {
		if here.Proves("client", wrong) {
			t.Errorf("a proof was accepted: %s", name)
		}
	}
	if len(said) != 2 || cap(said) != 2 {
		t.Error("Said was modified")
	}
}
