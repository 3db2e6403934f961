package source

import (
	"encoding/json"
	"errors"
	"io"
	"time"
)

// Access is how a process reaches what a URL names: what its environment says of stores, proxies
// and authorities, and its keys. Processes pass it in memory that no other one reads, as
// `hdmlp credentials URL --json` prints it; it is never part of a message or a log.
type Access struct {
	Endpoint      string `json:"endpoint"`       // the store's URL; "": that of its scheme
	Region        string `json:"region"`         // "": the store is asked
	Style         string `json:"style"`          // how URLs name a bucket: path, virtual, or ""
	RequesterPays bool   `json:"requester_pays"` // the user agrees to pay for requests
	// HTTPProxy, HTTPSProxy and NoProxy are as the environment variables of these names.
	HTTPProxy   string `json:"http_proxy"`
	HTTPSProxy  string `json:"https_proxy"`
	NoProxy     string `json:"no_proxy"`
	Authorities string `json:"authorities"` // certificates in PEM, trusted besides the system's
	Keys        *Keys  `json:"keys"`        // nil: requests are not signed
	Found       string `json:"found"`       // where the keys were found, for messages
}

// Keys are what requests to a store are signed with.
type Keys struct {
	ID      string    `json:"id"`
	Secret  string    `json:"secret"`
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"` // zero: they do not
}

// mostAccess bounds the bytes of an Access.
const mostAccess = 4 << 20

// ReadAccess reads an Access, as WriteAccess writes it.
func ReadAccess(r io.Reader) (*Access, error) {
	d := json.NewDecoder(io.LimitReader(r, mostAccess))
	d.DisallowUnknownFields()
	a := new(plainAccess)
	if err := d.Decode(a); err != nil {
		return nil, errors.New("how to reach the URL is not as `hdmlp credentials --json` writes it")
	}
	return (*Access)(a), nil
}

// plainAccess is an Access that is encoded with its secrets.
type plainAccess Access

// WriteAccess writes an Access with its secrets, as JSON.
func WriteAccess(w io.Writer, a *Access) error {
	return json.NewEncoder(w).Encode((*plainAccess)(a))
}

// String keeps secrets out of messages.
func (*Access) String() string { return "(access)" }

// GoString keeps secrets out of messages.
func (*Access) GoString() string { return "(access)" }

// MarshalJSON keeps secrets out of logs.
func (*Access) MarshalJSON() ([]byte, error) { return []byte(`"(access)"`), nil }

// String keeps secrets out of messages.
func (Keys) String() string { return "(keys)" }

// GoString keeps secrets out of messages.
func (Keys) GoString() string { return "(keys)" }

// Same reports whether two processes reach the same store with the same keys.
func (a *Access) Same(b *Access) bool {
	if a == nil || b == nil || (a.Keys == nil) != (b.Keys == nil) {
		return false
	}
	return a.Endpoint == b.Endpoint && (a.Keys == nil || a.Keys.ID == b.Keys.ID &&
		a.Keys.Secret == b.Keys.Secret && a.Keys.Token == b.Keys.Token)
}
