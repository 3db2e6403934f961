package report

import (
	"encoding/json"
	"reflect"
)

// Lists and tables of a report that are empty are [] and {} in JSON, or left out, and never null:
// scripts iterate over them.

// MarshalJSON implements json.Marshaler.
func (r Report) MarshalJSON() ([]byte, error) {
	type plain Report
	return marshal(plain(r))
}

// MarshalJSON implements json.Marshaler.
func (r RankReport) MarshalJSON() ([]byte, error) {
	type plain RankReport
	return marshal(plain(r))
}

// MarshalJSON implements json.Marshaler.
func (p Preprocessing) MarshalJSON() ([]byte, error) {
	type plain Preprocessing
	return marshal(plain(p))
}

// MarshalJSON implements json.Marshaler.
func (n NodeReport) MarshalJSON() ([]byte, error) {
	type plain NodeReport
	return marshal(plain(n))
}

// MarshalJSON implements json.Marshaler.
func (c ClusterReport) MarshalJSON() ([]byte, error) {
	type plain ClusterReport
	return marshal(plain(c))
}

// MarshalJSON implements json.Marshaler.
func (r RankTally) MarshalJSON() ([]byte, error) {
	type plain RankTally
	return marshal(plain(r))
}

// marshal encodes a struct whose type has no MarshalJSON of its own.
func marshal[T any](s T) ([]byte, error) {
	fill(reflect.ValueOf(&s).Elem())
	return json.Marshal(s)
}

// fill makes the lists and tables of a struct that are nil empty, also those of structs in it.
func fill(s reflect.Value) {
	for i := range s.NumField() {
		switch f := s.Field(i); {
		case !f.CanSet(): // not exported, and not in JSON
		case f.Kind() == reflect.Struct:
			fill(f)
		case f.Kind() == reflect.Slice && f.IsNil():
			f.Set(reflect.MakeSlice(f.Type(), 0, 0))
		case f.Kind() == reflect.Map && f.IsNil():
			f.Set(reflect.MakeMap(f.Type()))
		}
	}
}
