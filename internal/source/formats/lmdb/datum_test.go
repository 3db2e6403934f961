package lmdb

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
)

// sample returns a Datum as Caffe writes it.
func sample(channels, height, width, label int, data []byte) []byte {
	return joined(varint(datumChannels, channels), varint(datumHeight, height),
		varint(datumWidth, width), blob(datumData, data), varint(datumLabel, label))
}

func varint(field protowire.Number, v int) []byte {
	b := protowire.AppendTag(nil, field, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(v))
}

func blob(field protowire.Number, v []byte) []byte {
	b := protowire.AppendTag(nil, field, protowire.BytesType)
	return protowire.AppendBytes(b, v)
}

func joined(parts ...[]byte) (all []byte) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

func float(bits uint32) []byte {
	b := protowire.AppendTag(nil, datumFloats, protowire.Fixed32Type)
	return protowire.AppendFixed32(b, bits)
}

// TestADatumsDataIsTheSample, and its numbers are values.
func TestADatumsDataIsTheSample(t *testing.T) {
	const none = ` [label "0"] [channels "0"] [height "0"] [width "0"] [encoded "0"]`
	for name, c := range map[string]struct {
		value []byte
		want  string
	}{
		"raw": {
			sample(3, 32, 31, 9, []byte("chw")),
			` data="chw" [label "9"] [channels "3"] [height "32"] [width "31"] [encoded "0"]`,
		},
		"encoded": {
			joined(blob(datumData, []byte("jpeg")), varint(datumLabel, -1), varint(datumEncoded, 1)),
			` data="jpeg" [label "-1"] [channels "0"] [height "0"] [width "0"] [encoded "1"]`,
		},
		"in another order": {
			joined(varint(datumLabel, 2), varint(datumLabel, 3), blob(datumData, []byte("one")),
				blob(datumData, []byte("last"))),
			` data="last" [label "3"] [channels "0"] [height "0"] [width "0"] [encoded "0"]`,
		},
		"newer fields": {
			joined(blob(100, []byte("x")), varint(101, 5), blob(datumData, []byte("d")),
				protowire.AppendFixed64(protowire.AppendTag(nil, 102, protowire.Fixed64Type), 1)),
			` data="d"` + none,
		},
		"no data": {varint(datumLabel, 0), ` data=""` + none},
		"floats":  {blob(datumFloats, []byte("f32f")), ` float_data="f32f"` + none},
		"floats, and empty data": {
			joined(blob(datumData, nil), blob(datumFloats, []byte("f32f"))),
			` float_data="f32f"` + none,
		},
		"both": {
			joined(blob(datumData, []byte("d")), blob(datumFloats, []byte("f32f"))),
			` data="d" float_data="f32f"` + none,
		},
	} {
		o := one(t, built(512, record{key: "k", value: c.value}))
		x, err := Index(t.Context(), o, []string{"data.mdb"}, values(DecoderKey, caffe))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff([]string{`"k"` + c.want}, shown(o, x)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestWhatIsNoDatumIsRefused with what to do.
func TestWhatIsNoDatumIsRefused(t *testing.T) {
	image := append([]byte{0xff, 0xd8, 0xff, 0xe0}, make([]byte, 100)...)
	for name, c := range map[string]struct {
		value []byte
		want  string
	}{
		"JPEG":     {image, `is cut off, or of a kind`},
		"PNG":      {[]byte("\x89PNG\r\n\x1a\n"), `with decoder = "raw" it is read as it is`},
		"text":     {[]byte("hello"), "field 13 is cut off"},
		"pickle":   {[]byte("\x80\x04N."), "no Datum of Caffe"},
		"zeros":    {make([]byte, 20), "a field has no number"},
		"cut":      {sample(3, 2, 1, 7, []byte("data"))[:9], "field 4 is cut off"},
		"type":     {varint(datumData, 1), "field 4 has the type 0, not 2"},
		"a string": {blob(datumLabel, []byte("cat")), "field 5 has the type 2, not 0"},
		"floats":   {joined(float(1), float(2)), "its float_data is not in one piece"},
		"pieces": {
			joined(blob(datumFloats, make([]byte, 8)), blob(datumFloats, make([]byte, 4))),
			"its float_data is not in one piece",
		},
	} {
		data := built(512, record{key: "k", value: c.value})
		refused(t, name, data, values(DecoderKey, caffe), c.want)
		refused(t, name, data, values(DecoderKey, caffe), `byte 1024: the key "k": `)
	}
}

// TestOfALargeDatumTwoPagesAreRead: those of the fields before the data and after it.
func TestOfALargeDatumTwoPagesAreRead(t *testing.T) {
	draw := rand.New(rand.NewPCG(1, 2))
	var records []record
	for i, r := range numbered(100, "") {
		r.value = sample(3, 100, 100, i, make([]byte, 30_000+draw.IntN(9000)))
		records = append(records, r)
	}
	o := one(t, built(4096, records...))
	x, err := Index(t.Context(), o, []string{"data.mdb"}, values(DecoderKey, caffe))
	if err != nil {
		t.Fatal(err)
	}
	for id := range x.Len() {
		if label := x.Value(0, id); label != strconv.Itoa(id) {
			t.Errorf("record %d has the label %s", id, label)
		}
		r := x.Ranges(nil, id)[0]
		if want := int64(len(records[id].value)) - r.Length; want < 10 || want > 20 {
			t.Errorf("record %d: %d bytes beside the data", id, want)
		}
	}
	if got := o.bytes.Load(); got > 100*2*4096+20*4096 {
		t.Errorf("%d bytes were read", got)
	}
}
