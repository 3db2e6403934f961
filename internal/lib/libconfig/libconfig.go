// Package libconfig parses libconfig files, in which the program of the HDMLP thesis is configured
// (thesis 4.3.3).
//
//	name = value;                    # or name: value, and ; may be left out
//	list = ( 1, { a = 2; } );        // of values of any types
//	array = [ 1, 2, 3 ];             /* of scalars of one type */
//	text = "a" "b";
//
// Files that include others (@include) are refused.
package libconfig

import (
	"fmt"
	"strconv"
	"strings"
)

// Group is the settings of a file, or of a group in it, in their order.
type Group []Setting

// Setting is a named value.
type Setting struct {
	Name string
	Value
}

// Value is a value, and the line that it begins on, from 1. Any is an int64, float64, bool, string,
// Group or List.
type Value struct {
	Line int
	Any  any
}

// List is the values of a list or an array.
type List []Value

// mostDepth is how deep values may be nested.
const mostDepth = 32

// Error is what keeps a text from being a libconfig file.
type Error struct {
	Line  int // from 1
	Wrong string
}

func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Wrong) }

// Parse returns the settings of a text. An error is an *Error.
func Parse(text string) (Group, error) {
	p := parser{text: text, line: 1}
	p.next()
	g := p.group(kindEnd, 0)
	if p.err != nil {
		return nil, p.err
	}
	return g, nil
}

// kind is what a token is: one of these, or the character itself.
type kind rune

const (
	kindEnd kind = -1 - iota
	kindName
	kindString
	kindNumber
)

// parser reads one token ahead. After an error every token is the end.
type parser struct {
	text  string
	at    int
	line  int // of at
	kind  kind
	token string // of a string, without quotes and escapes
	begin int    // the line of the token
	err   *Error
}

func (p *parser) fail(line int, format string, args ...any) {
	if p.err == nil {
		p.err = &Error{line, fmt.Sprintf(format, args...)}
	}
	p.at, p.kind = len(p.text), kindEnd
}

// found is the token, for messages.
func (p *parser) found() string {
	if p.kind == kindEnd {
		return "the end of the file"
	}
	return strconv.Quote(p.token)
}

func isLetter(c byte) bool { return c == '*' || c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

// skip passes blanks and comments.
func (p *parser) skip() {
	for p.at < len(p.text) {
		rest := p.text[p.at:]
		end := 0
		switch {
		case strings.HasPrefix(rest, "#"), strings.HasPrefix(rest, "//"):
			end = strings.IndexByte(rest, '\n')
			if end < 0 {
				end = len(rest)
			}
		case strings.HasPrefix(rest, "/*"):
			length := strings.Index(rest[2:], "*/")
			if length < 0 {
				p.fail(p.line, "the comment has no end; close it with */")
				return
			}
			end = length + 4
		case strings.ContainsRune(" \t\r\n\f", rune(rest[0])):
			end = 1
		default:
			return
		}
		p.line += strings.Count(rest[:end], "\n")
		p.at += end
	}
}

// next reads a token.
func (p *parser) next() {
	p.skip()
	p.begin = p.line
	if p.at == len(p.text) {
		p.kind = kindEnd
		return
	}
	from := p.at
	while := func(in func(c byte) bool) {
		for p.at < len(p.text) && in(p.text[p.at]) {
			p.at++
		}
		p.token = p.text[from:p.at]
	}
	switch c := p.text[p.at]; {
	case isLetter(c):
		while(func(c byte) bool { return isLetter(c) || isDigit(c) || c == '-' })
		p.kind = kindName
	case isDigit(c) || c == '-' || c == '+' || c == '.':
		while(func(c byte) bool {
			return isLetter(c) || isDigit(c) || c == '-' || c == '+' || c == '.'
		})
		p.kind = kindNumber
	case c == '"':
		p.kind, p.token = kindString, p.quoted()
	case c == '@':
		p.fail(p.line, "@include is not supported; write what it includes here")
	default:
		p.kind, p.token = kind(c), string(c)
		p.at++
	}
}

// escapes are the characters after a backslash that mean another one.
var escapes = map[byte]byte{
	'\\': '\\', '"': '"', 'n': '\n', 'r': '\r', 't': '\t', 'f': '\f', 'a': '\a', 'b': '\b', 'v': '\v',
}

// quoted reads a string from its opening quote on.
func (p *parser) quoted() string {
	var b strings.Builder
	for p.at++; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; c {
		case '"':
			p.at++
			return b.String()
		case '\n':
			p.fail(p.begin, "the string has no end on its line; close it with \"")
			return ""
		case '\\':
			b.WriteByte(p.escape())
		default:
			b.WriteByte(c)
		}
	}
	p.fail(p.begin, "the string has no end; close it with \"")
	return ""
}

// escape reads what follows a backslash, up to its last character.
func (p *parser) escape() byte {
	p.at++
	rest := p.text[p.at:]
	if len(rest) > 0 {
		if c, known := escapes[rest[0]]; known {
			return c
		}
	}
	if len(rest) >= 3 && rest[0] == 'x' {
		if n, err := strconv.ParseUint(rest[1:3], 16, 8); err == nil {
			p.at += 2
			return byte(n)
		}
	}
	p.fail(p.begin, "the string has an unknown escape after \\; write \\\\ for a backslash")
	return 0
}

// group reads settings up to a token of the kind end.
func (p *parser) group(end kind, depth int) Group {
	g := Group{}
	lines := map[string]int{}
	for p.kind != end {
		if p.kind != kindName {
			p.fail(p.begin, "the name of a setting is missing before %s", p.found())
			return nil
		}
		name, line := p.token, p.begin
		if at, twice := lines[name]; twice {
			p.fail(line, "%s is set twice, first in line %d", name, at)
		}
		lines[name] = line
		p.next()
		if p.kind != '=' && p.kind != ':' {
			p.fail(p.begin, "= is missing after %s, before %s", name, p.found())
			return nil
		}
		p.next()
		g = append(g, Setting{name, p.value(depth)})
		if p.kind == ';' || p.kind == ',' {
			p.next()
		}
	}
	p.next()
	return g
}

// value reads a value.
func (p *parser) value(depth int) Value {
	v := Value{Line: p.begin}
	if depth == mostDepth {
		p.fail(p.begin, "values are nested deeper than %d", mostDepth)
		return v
	}
	switch p.kind {
	case kindString:
		text := p.token
		for p.next(); p.kind == kindString; p.next() {
			text += p.token
		}
		v.Any = text
	case kindNumber:
		v.Any = p.number()
		p.next()
	case kindName:
		switch strings.ToLower(p.token) {
		case "true":
			v.Any = true
		case "false":
			v.Any = false
		default:
			p.fail(p.begin, "%s is no value; text needs quotes", p.found())
		}
		p.next()
	case '{':
		p.next()
		v.Any = p.group('}', depth+1)
	case '(':
		v.Any = p.list(')', depth+1)
	case '[':
		v.Any = p.list(']', depth+1)
	default:
		p.fail(p.begin, "a value is missing before %s", p.found())
	}
	return v
}

// number reads the token as a number.
func (p *parser) number() any {
	text := strings.TrimRight(p.token, "Ll")
	base := 10
	digits := text
	if strings.HasPrefix(text, "0x") || strings.HasPrefix(text, "0X") {
		base, digits = 16, text[2:]
	}
	if n, err := strconv.ParseInt(digits, base, 64); err == nil {
		return n
	}
	if strings.Trim(text, "+-.0123456789eE") == "" && text == p.token {
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			return n
		}
	}
	p.fail(p.begin, "%q is no number, or one out of range", p.token)
	return nil
}

// list reads values up to a token of the kind end.
func (p *parser) list(end kind, depth int) List {
	l := List{}
	for p.next(); p.kind != end; p.next() {
		v := p.value(depth)
		if end == ']' && !sameScalar(l, v) {
			p.fail(v.Line, "an array has scalars of one type; write ( ) for a list of others")
		}
		l = append(l, v)
		if p.kind == end {
			break
		}
		if p.kind != ',' {
			p.fail(p.begin, "%q or , is missing before %s", string(rune(end)), p.found())
			return nil
		}
	}
	p.next()
	return l
}

// sameScalar reports whether an array may have v besides what it has.
func sameScalar(l List, v Value) bool {
	switch v.Any.(type) {
	case Group, List:
		return false
	}
	return len(l) == 0 || fmt.Sprintf("%T", l[0].Any) == fmt.Sprintf("%T", v.Any)
}
