package protocol

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf16"
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

// UnmarshalJSON implements json.Unmarshaler.
func (n *Name) UnmarshalJSON(text []byte) error {
	var valid string
	if err := json.Unmarshal(text, &valid); err != nil { // the syntax is right from here on
		return err
	}
	if !bytes.Contains(bytes.ToLower(text), []byte(`\udc`)) {
		*n = Name(valid)
		return nil
	}
	var name []byte
	for rest := text[1 : len(text)-1]; len(rest) > 0; {
		size := 1
		switch {
		case rest[0] != '\\':
			name = append(name, rest[0])
		case rest[1] == 'u':
			size = 6
			r := unicodeEscape(rest)
			if utf16.IsSurrogate(r) && len(rest) >= 12 && rest[6] == '\\' && rest[7] == 'u' {
				if pair := utf16.DecodeRune(r, unicodeEscape(rest[6:])); pair != utf8.RuneError {
					r, size = pair, 12
				}
			}
			if r >= 0xdc80 && r <= 0xdcff {
				name = append(name, byte(r))
			} else {
				name = utf8.AppendRune(name, r)
			}
		default:
			size = 2
			var one string
			_ = json.Unmarshal([]byte(`"`+string(rest[:2])+`"`), &one) // valid, as all is
			name = append(name, one...)
		}
		rest = rest[size:]
	}
	*n = Name(name)
	return nil
}

// unicodeEscape returns the code unit of an escape such as \u00e4.
func unicodeEscape(text []byte) rune {
	r, _ := strconv.ParseUint(string(text[2:6]), 16, 16) // valid, as all is
	return rune(r)
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
