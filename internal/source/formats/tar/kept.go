package tar

import (
	"bytes"
	"encoding/gob"
)

// keptSample and keptPart are a sample as it is kept while the index is being made.
type keptSample struct {
	Key    string
	Parts  []keptPart
	Values []string
}

type keptPart struct {
	Name         string
	Offset, Size int64
}

// takeKept takes the samples that were found in this version of the shard before an interruption,
// and reports whether they were.
func (s *shard) takeKept() bool {
	if s.kept == nil {
		return false
	}
	data := s.kept.Found(&s.object)
	var list []keptSample
	if data == nil || gob.NewDecoder(bytes.NewReader(data)).Decode(&list) != nil {
		return false
	}
	names := map[string]string{} // so that each is in memory once
	samples := make([]sample, len(list))
	for i, k := range list {
		samples[i] = sample{key: k.Key, values: k.Values, parts: make([]part, len(k.Parts))}
		for p, f := range k.Parts {
			if f.Offset < 0 || f.Size < 0 || f.Offset > s.object.Size-f.Size {
				return false
			}
			if _, ok := names[f.Name]; !ok {
				names[f.Name] = f.Name
			}
			samples[i].parts[p] = part{names[f.Name], f.Offset, f.Size}
		}
		if len(k.Parts) == 0 || k.Values != nil && len(k.Values) != len(s.values) {
			return false
		}
	}
	s.samples = samples
	return true
}

// keep keeps the samples of the shard, all of which have been found.
func (s *shard) keep() {
	if s.kept == nil {
		return
	}
	list := make([]keptSample, len(s.samples))
	for i, v := range s.samples {
		list[i] = keptSample{Key: v.key, Values: v.values, Parts: make([]keptPart, len(v.parts))}
		for p, f := range v.parts {
			list[i].Parts[p] = keptPart{f.name, f.offset, f.size}
		}
	}
	var b bytes.Buffer
	if gob.NewEncoder(&b).Encode(list) == nil { // which does not fail
		s.kept.Keep(&s.object, b.Bytes())
	}
}
