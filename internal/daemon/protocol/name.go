package protocol

import (
	"encoding/json"
	"fmt"
	"unicode/utf8"
)

// Name is the name of a file, a directory or a class. In JSON, each of its bytes that is no UTF-8
// is an escape from \udc80 to \udcff, which Python reads as os.fsdecode of the name: two names are
// never the same there, and a path leads to its file.
type Name string

// MarshalJSON implements json.Marshaler.
func (n Name) MarshalJSON() ([]byte, error) {
	text := []byte{'"'}
	for rest := string(n); rest != ""; {
		valid := validPrefix(rest)
		quoted, err := json.Marshal(rest[:valid])
		if err != nil {
			return nil, err
		}
		text = append(text, quoted[1:len(quoted)-1]...)
		if rest = rest[valid:]; rest != "" {
			text = fmt.Appendf(text, `\udc%02x`, rest[0])
			rest = rest[1:]
		}
	}
	return append(text, '"'), nil
}

// validPrefix returns the length of the longest prefix that is UTF-8.
func validPrefix(s string) int {
	for i, r := range s {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(s[i:]); size == 1 {
				return i
			}
		}
	}
	return len(s)
}

// Names returns the names as they are sent.
func Names(list []string) []Name {
	names := make([]Name, len(list))
	for i, name := range list {
		names[i] = Name(name)
	}
	return names
}
