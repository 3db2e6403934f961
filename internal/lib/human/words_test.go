package human

import "testing"

func TestWords(t *testing.T) {
	for got, want := range map[string]string{
		Group(1234567.891, 2): "1,234,567.89", Group(-1234, 0): "-1,234",
		Group(999.999, 1): "1,000.0", Group(0, 0): "0",
		Seconds(0): "0", Seconds(0.01234): "0.0123", Seconds(7.304): "7.30",
		Seconds(60526.36): "60,526.4", Seconds(123456): "123,456",
		Clock(90): "90.00 s", Clock(3599): "59 min 59 s", Clock(7265): "2 h 01 min",
		Clock(200000): "2 d 07 h",
		Rounded(0):    "0", Rounded(0.027): "27 KB", Rounded(51200): "51.2 GB",
		Rounded(10000): "10 GB", Rounded(1.2e6): "1.2 TB", Rounded(100): "100 MB",
		Percent(1): "100 %", Percent(0.9999): ">99.9 %", Percent(0.1706): "17.1 %",
		Percent(0): "0 %", Percent(1e-5): "<0.1 %",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
