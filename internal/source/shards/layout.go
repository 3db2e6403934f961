// Package shards writes the samples of any source as tar shards by WebDataset's rules.
//
// Which bytes a shard has follows from the dataset's index, the order and the options alone, not
// from when it is written: a Layout is known before a byte is read, so that a Write that was
// interrupted goes on, with the same result (write.go).
//
// A member is called KEY.FIELD. The key is the sample's; dots after its last slash, and what tar
// files do not hold, are replaced. A key that an earlier sample has gets the sample's ID. Members
// are regular files with mode 0644, of user 0, and of time 0.
package shards

import (
	"archive/tar"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/zeebo/xxh3"

	"github.com/hdmlp/hdmlp/internal/source"
)

const (
	// ClassField is the field of the number of a sample's class.
	ClassField = "cls"
	// labelColumn is the column that is written as ClassField, if there is no such field.
	labelColumn = "label"
	// bareField is the field of a file whose name has no extension.
	bareField = "bin"
	// DefaultPattern is how shards are called, as by webdataset's writer.
	DefaultPattern = "%06d.tar"

	block    = 512
	trailer  = 2 * block
	minShard = 64 << 20
	maxShard = 1 << 30
	// manyShards is how many shards there are at least, if they do not get smaller than minShard.
	manyShards = 128
)

// DefaultSize returns the size of shards for this many bytes of samples: 1 GiB; less, and at least
// 64 MiB, so that there are 128 that nodes and workers can divide.
func DefaultSize(bytes int64) int64 { return min(max(bytes/manyShards, minShard), maxShard) }

// Options say what the shards of a dataset are.
type Options struct {
	Pattern string            // of their names, with a number such as %06d; "": DefaultPattern
	Size    int64             // that a shard with several samples does not exceed
	Order   []int32           // the samples' IDs in the order in which they are written; nil: by ID
	Rename  map[string]string // fields: from the dataset's names
}

// Layout is which samples are in which shard, and as what.
type Layout struct {
	index   *source.Index
	order   []int32
	pattern string
	fields  []string       // of the index, as they are written; nil: by the file's name
	columns []column       // written besides
	classes bool           // the number of the class is written
	names   []string       // of the classes; nil: they are not known
	numbers map[string]int // of the classes, by the names that the label column has; nil: numbers
	others  map[int]string // keys that are not the sample's own
	shards  []Shard
	sum     string
}

// column is a column of values that is no field.
type column struct {
	number int
	name   string // of the field
}

// Shard is one file.
type Shard struct {
	Name  string
	Size  int64 // bytes
	First int   // of its samples, in the order
	End   int
}

// member is a file of a shard.
type member struct {
	name   string
	length int64
	field  int    // whose bytes it has; -1: text
	text   string // the bytes, if field is -1
}

// New returns the layout of a dataset's shards. Errors are the caller's to put right.
func New(x *source.Index, o Options) (*Layout, error) {
	l := &Layout{index: x, order: o.Order, pattern: o.Pattern, others: map[int]string{}}
	if l.pattern == "" {
		l.pattern = DefaultPattern
	}
	if !validPattern.MatchString(l.pattern) {
		return nil, fmt.Errorf("the pattern of shards is %q; allowed: a file's name with one number, "+
			"such as %s or train-%%04d.tar", l.pattern, DefaultPattern)
	}
	if o.Size < 1 {
		return nil, fmt.Errorf("the size of a shard is %d; it must be 1 or more", o.Size)
	}
	if err := l.name(o.Rename); err != nil {
		return nil, err
	}
	l.findKeys()
	if err := l.divide(o.Size); err != nil {
		return nil, err
	}
	return l, nil
}

var validPattern = regexp.MustCompile(`^[^%/]*%(0[1-9])?d[^%/]*\.tar$`)

// validField is what a field's name is: WebDataset's rules, without what shells and file systems
// trip over.
var validField = regexp.MustCompile(`^[a-z0-9_+-]+(\.[a-z0-9_+-]+)*$`)

// name sets the fields' names.
func (l *Layout) name(rename map[string]string) error {
	known := l.index.Fields()
	seen := map[string]string{}
	take := func(old string) (string, error) {
		name := strings.ToLower(old)
		if given, ok := rename[old]; ok {
			name = given
		}
		if !validField.MatchString(name) {
			return "", fmt.Errorf("the field %q cannot be called so in a shard: give it a name of "+
				"a-z, 0-9, _ and dots, such as jpg, by renaming it", name)
		}
		if other, ok := seen[name]; ok {
			return "", fmt.Errorf("the fields %q and %q would both be %q: rename one of them", other,
				old, name)
		}
		seen[name] = old
		return name, nil
	}
	for _, old := range known {
		name, err := take(old)
		if err != nil {
			return err
		}
		l.fields = append(l.fields, name)
	}
	for c, old := range l.index.Columns() {
		if slices.Contains(known, old) {
			continue // it is of the field
		}
		as := old
		if _, ok := seen[ClassField]; !ok && old == labelColumn && rename[old] == "" {
			seen[ClassField] = old
			l.columns = append(l.columns, column{c, ClassField})
			l.number(c)
			continue
		}
		name, err := take(as)
		if err != nil {
			return err
		}
		l.columns = append(l.columns, column{c, name})
	}
	_, taken := seen[ClassField]
	if l.classes = !taken && l.index.Labelled() && len(l.index.Classes()) > 0; l.classes {
		l.names = l.index.Classes()
	}
	for old := range rename {
		if !slices.Contains(known, old) && !slices.Contains(l.index.Columns(), old) {
			return fmt.Errorf("there is no field %q to rename", old)
		}
	}
	return nil
}

// number gives the texts of a column of labels the numbers of classes, sorted, unless all of them
// are numbers.
func (l *Layout) number(c int) {
	numbers, texts := true, map[string]int{}
	for id := range l.index.Len() {
		value := l.index.Value(c, id)
		if _, err := strconv.Atoi(value); err != nil {
			numbers = false
		}
		texts[value] = 0
	}
	if numbers {
		return
	}
	l.names, l.numbers = slices.Sorted(maps.Keys(texts)), texts
	for i, name := range l.names {
		texts[name] = i
	}
}

// findKeys finds the samples whose key an earlier one has.
func (l *Layout) findKeys() {
	seen := make(map[uint64]struct{}, l.index.Len())
	for id := range l.index.Len() {
		key, _ := l.split(id)
		for {
			sum := xxh3.HashString(key)
			if _, ok := seen[sum]; !ok {
				seen[sum] = struct{}{}
				break
			}
			key += "-" + strconv.Itoa(id)
			l.others[id] = key
		}
	}
}

// key returns the key of a sample.
func (l *Layout) key(id int) string {
	if key, ok := l.others[id]; ok {
		return key
	}
	key, _ := l.split(id)
	return key
}

// split returns a sample's own key and, of a dataset whose files are the samples, its field.
func (l *Layout) split(id int) (key, field string) {
	name := l.index.Name(id)
	if l.fields == nil {
		ext := path.Ext(name)
		name = strings.TrimSuffix(name, ext)
		field = strings.ToLower(strings.TrimPrefix(ext, "."))
		if !validField.MatchString(field) {
			name, field = name+ext, bareField
		}
	}
	return cleanKey(name), field
}

// cleanKey returns a key as tar files and WebDataset's rules allow it.
func cleanKey(key string) string {
	var parts []string
	for part := range strings.SplitSeq(key, "/") {
		if part != "" && part != "." && part != ".." {
			parts = append(parts, cleanText(part))
		}
	}
	if len(parts) == 0 {
		return "_"
	}
	last := len(parts) - 1
	parts[last] = strings.ReplaceAll(parts[last], ".", "_")
	return strings.Join(parts, "/")
}

// cleanText replaces control characters, and bytes that are not UTF-8, by their hex digits.
func cleanText(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == utf8.RuneError }) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		if _, n := utf8.DecodeRuneInString(text[i:]); r < ' ' || r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, "%%%02x", text[i])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// members appends the members of a sample to dst.
func (l *Layout) members(dst []member, id int) []member {
	key := l.key(id)
	if l.fields == nil {
		_, field := l.split(id)
		dst = append(dst, member{name: key + "." + field, length: l.index.Size(id)})
	}
	for f, name := range l.fields {
		if n := l.index.FieldSize(f, id); n != source.Missing {
			dst = append(dst, member{name: key + "." + name, length: n, field: f})
		}
	}
	text := func(field, value string) {
		dst = append(dst, member{
			name: key + "." + field, length: int64(len(value)), field: -1, text: value,
		})
	}
	for _, c := range l.columns {
		value := l.index.Value(c.number, id)
		if number, ok := l.numbers[value]; ok && c.name == ClassField {
			value = strconv.Itoa(number)
		}
		if value != "" {
			text(c.name, value)
		}
	}
	if l.classes {
		text(ClassField, strconv.Itoa(l.index.Label(id)))
	}
	return dst
}

// divide divides the samples into shards.
func (l *Layout) divide(size int64) error {
	n := l.index.Len()
	if l.order != nil {
		n = len(l.order)
	}
	if n == 0 {
		return errors.New("there are no samples")
	}
	var members []member
	sum := xxh3.New()
	s := Shard{Size: trailer}
	finish := func(end int) {
		s.Name, s.End = fmt.Sprintf(l.pattern, len(l.shards)), end
		l.shards = append(l.shards, s)
		s = Shard{Size: trailer, First: end}
	}
	for at := range n {
		need := int64(0)
		members = l.members(members[:0], l.id(at))
		for i := range members {
			m := &members[i]
			need += headerSize(m) + padded(m.length)
			_, _ = fmt.Fprintf(sum, "%s %d %s\n", m.name, m.length, m.text) // it never fails
		}
		if s.First < at && (s.Size+need > size || s.Size+need < 0) {
			finish(at)
		}
		s.Size += need
	}
	finish(n)
	fingerprint := l.index.Fingerprint()
	_, _ = sum.Write(fingerprint[:])
	for _, s := range l.shards {
		_, _ = fmt.Fprintf(sum, "%s %d\n", s.Name, s.Size)
	}
	total := sum.Sum128().Bytes()
	l.sum = hex.EncodeToString(total[:])
	return nil
}

// id returns the sample at a position of the order.
func (l *Layout) id(at int) int {
	if l.order == nil {
		return at
	}
	return int(l.order[at])
}

// Shards returns the shards. The caller must not change them.
func (l *Layout) Shards() []Shard { return l.shards }

// Samples returns how many samples are written.
func (l *Layout) Samples() int { return l.shards[len(l.shards)-1].End }

// Bytes returns the size of all shards.
func (l *Layout) Bytes() (sum int64) {
	for _, s := range l.shards {
		sum += s.Size
	}
	return sum
}

// header returns the header of a member.
func header(m *member) *tar.Header {
	return &tar.Header{
		Typeflag: tar.TypeReg, Name: m.name, Size: m.length, Mode: 0o644, ModTime: time.Unix(0, 0),
	}
}

// headerSize returns how many bytes a member's header takes: a block, or more if the name does not
// fit it.
func headerSize(m *member) int64 {
	const inOneBlock, most = 100, 1<<33 - 1
	if len(m.name) <= inOneBlock && m.length <= most && isASCII(m.name) {
		return block
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if w.WriteHeader(header(m)) != nil {
		return math.MaxInt32 // which writing reports
	}
	return int64(b.Len())
}

func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf })
}

func padded(n int64) int64 { return (n + block - 1) &^ (block - 1) }

// writeSample writes the members of a sample whose packed bytes are given.
func (l *Layout) writeSample(w *tar.Writer, id int, packed []byte) error {
	fields := l.index.Split(nil, id, packed)
	for _, m := range l.members(nil, id) {
		if err := w.WriteHeader(header(&m)); err != nil {
			return fmt.Errorf("sample %d: %s: %w", id, m.name, err)
		}
		var err error
		if m.field < 0 {
			_, err = io.WriteString(w, m.text)
		} else {
			_, err = w.Write(fields[m.field])
		}
		if err != nil {
			return err
		}
	}
	return nil
}
