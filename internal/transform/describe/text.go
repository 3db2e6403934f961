package describe

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// Parse converts a list of transforms, written as in a Python script, into a description for
// Compile:
//
//	RandomResizedCrop(224, scale=(0.5, 1)), RandomHorizontalFlip(), ToTensor()
//
// Names may be qualified with a module, and the list may be in brackets or in a Compose. Text that
// already is a description is returned unchanged. params returns a transform's parameters. Parse
// does not validate values.
func Parse(text string, params func(name string) ([]Param, error)) ([]byte, error) {
	p := parser{rest: strings.TrimSpace(text), params: params}
	if json.Valid([]byte(p.rest)) {
		return []byte(p.rest), nil
	}
	list, err := p.calls()
	if err != nil {
		return nil, fmt.Errorf("transforms: %w", err)
	}
	return json.Marshal(list)
}

// parser parses Python's calls, lists, names and literals.
type parser struct {
	params func(name string) ([]Param, error)
	rest   string
	depth  int
}

func (p *parser) skip() { p.rest = strings.TrimLeftFunc(p.rest, unicode.IsSpace) }

// take skips token if the text continues with it, and reports whether it did.
func (p *parser) take(token string) bool {
	p.skip()
	rest, ok := strings.CutPrefix(p.rest, token)
	if ok {
		p.rest = rest
	}
	return ok
}

func (p *parser) expected(what string) error {
	p.skip()
	if p.rest == "" {
		return fmt.Errorf("the text ends where %s was expected", what)
	}
	return fmt.Errorf("%s expected at %s", what, strconv.Quote(Abbreviate(p.rest)))
}

// calls parses the whole text: transforms, in brackets or not.
func (p *parser) calls() ([]map[string]any, error) {
	closing := ""
	if p.take("[") {
		closing = "]"
	}
	list, err := p.list(closing)
	if p.skip(); err == nil && p.rest != "" {
		err = p.expected("the end")
	}
	return list, err
}

// list parses transforms up to the closing bracket or, if closing is "", the end.
func (p *parser) list(closing string) ([]map[string]any, error) {
	if p.depth++; p.depth > 20 {
		return nil, fmt.Errorf("lists are nested too deeply")
	}
	defer func() { p.depth-- }()
	list := []map[string]any{}
	for {
		p.skip()
		if closing == "" && p.rest == "" || closing != "" && p.take(closing) {
			return list, nil
		}
		name := p.name()
		if name == "" {
			return nil, p.expected("a transform")
		}
		if !p.take("(") {
			return nil, p.expected("( after " + name)
		}
		var err error
		if name == "Compose" || name == "Sequential" {
			list, err = p.compose(list)
		} else {
			list, err = p.call(list, name)
		}
		if err != nil {
			return nil, err
		}
		if p.skip(); !p.take(",") && p.rest != "" &&
			(closing == "" || !strings.HasPrefix(p.rest, closing)) {
			return nil, p.expected("a comma")
		}
	}
}

// compose parses the list within the brackets of Compose.
func (p *parser) compose(list []map[string]any) ([]map[string]any, error) {
	closing := ")"
	if p.take("[") {
		closing = "]"
	}
	inner, err := p.list(closing)
	if err == nil && closing == "]" && !p.take(")") {
		err = p.expected(")")
	}
	return append(list, inner...), err
}

// call parses the arguments of a transform.
func (p *parser) call(list []map[string]any, name string) ([]map[string]any, error) {
	params, err := p.params(name)
	if err != nil {
		return nil, err
	}
	entry := map[string]any{"name": name}
	for position := 0; !p.take(")"); position++ {
		key := ""
		before := p.rest
		if word := p.name(); word != "" && p.take("=") {
			key = word
		} else {
			p.rest = before
			if position >= len(params) {
				return nil, fmt.Errorf("%s takes at most %d arguments", name, len(params))
			}
			key = params[position].name()
		}
		if _, twice := entry[key]; twice {
			return nil, fmt.Errorf("%s: %s is given twice", name, key)
		}
		if entry[key], err = p.value(); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", name, key, err)
		}
		if p.skip(); !p.take(",") && !strings.HasPrefix(p.rest, ")") {
			return nil, p.expected("a comma or )")
		}
	}
	return append(list, entry), nil
}

// name parses a name and drops its modules; "" if there is no name.
func (p *parser) name() string {
	p.skip()
	end := strings.IndexFunc(p.rest, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '.'
	})
	if end < 0 {
		end = len(p.rest)
	}
	word := p.rest[:end]
	if word == "" || unicode.IsDigit(rune(word[0])) || word[0] == '.' {
		return ""
	}
	p.rest = p.rest[end:]
	return word[strings.LastIndexByte(word, '.')+1:]
}

// value parses a number, a string, a list or tuple, True, False, None, or the name of a type or an
// interpolation (torch.float16, InterpolationMode.BICUBIC).
func (p *parser) value() (any, error) {
	if p.depth++; p.depth > 20 {
		return nil, fmt.Errorf("lists are nested too deeply")
	}
	defer func() { p.depth-- }()
	for opening, closing := range map[string]string{"(": ")", "[": "]"} {
		if p.take(opening) {
			return p.values(closing)
		}
	}
	for _, quote := range []string{`"`, `'`} {
		if p.take(quote) {
			text, rest, ok := strings.Cut(p.rest, quote)
			if !ok {
				return nil, fmt.Errorf("unterminated string: %s", strconv.Quote(Abbreviate(text)))
			}
			p.rest = rest
			return text, nil
		}
	}
	if word := p.name(); word != "" {
		switch word {
		case "True":
			return true, nil
		case "False":
			return false, nil
		case "None":
			return nil, nil //nolint:nilnil // Python's None is JSON's null
		case "half":
			return "float16", nil
		case "float":
			return "float32", nil
		}
		if p.take("(") { // a transform within a transform
			return p.within(word)
		}
		return strings.ToLower(word), nil
	}
	return p.number()
}

// within parses a transform that is an argument, or a list of them.
func (p *parser) within(name string) (any, error) {
	if name == "Compose" || name == "Sequential" {
		return p.compose(nil)
	}
	list, err := p.call(nil, name)
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

func (p *parser) values(closing string) ([]any, error) {
	list := []any{}
	for !p.take(closing) {
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		if p.skip(); !p.take(",") && !strings.HasPrefix(p.rest, closing) {
			return nil, p.expected("a comma or " + closing)
		}
	}
	return list, nil
}

// number parses a number or the quotient of two, as in ratio=(3/4, 4/3).
func (p *parser) number() (any, error) {
	v, err := p.literal()
	for err == nil && p.take("/") {
		var by float64
		if by, err = p.literal(); err == nil {
			if by == 0 {
				return nil, fmt.Errorf("division by zero")
			}
			v /= by
		}
	}
	return v, err
}

func (p *parser) literal() (float64, error) {
	p.skip()
	end := strings.IndexFunc(p.rest, func(r rune) bool {
		return !strings.ContainsRune("0123456789.eE+-_", r)
	})
	if end < 0 {
		end = len(p.rest)
	}
	v, err := strconv.ParseFloat(strings.ReplaceAll(p.rest[:end], "_", ""), 64)
	if err != nil {
		return 0, p.expected("a value")
	}
	p.rest = p.rest[end:]
	return v, nil
}
