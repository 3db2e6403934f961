package protocol

import (
	"encoding/json"
	"testing"
)

func TestNamesAreEscapedReversibly(t *testing.T) {
	for _, test := range []struct{ name, want string }{
		{"", `""`},
		{"cat", `"cat"`},
		{"é \U0001f600 \ufffd", `"é ` + "\U0001f600 \ufffd" + `"`},
		{"\"\\\n\x00", `"\"\\\n\u0000"`},
		{"a\xfe", `"a\udcfe"`},
		{"\x80b\xff\xffé\xc3", `"\udc80b\udcff\udcffé\udcc3"`},
		{"\xed\xa0\x80", `"\udced\udca0\udc80"`}, // half of a pair is no UTF-8
	} {
		got, err := json.Marshal([]Name{Name(test.name)})
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != "["+test.want+"]" {
			t.Errorf("%q is %s, want [%s]", test.name, got, test.want)
		}
	}
}
