package node

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/hdmlp/hdmlp/internal/config"
	"github.com/hdmlp/hdmlp/internal/request"
)

func TestWhatCannotBeSharedSaysWhy(t *testing.T) {
	for says, change := range map[string]func(*opening){
		"": func(*opening) {},
		"several nodes": func(o *opening) {
			o.request.Cluster = &request.Cluster{Nodes: 2, LocalWorldSize: 1}
		},
		"draws the order itself": func(o *opening) { o.request.Stream.Given = &request.Given{} },
		"nothing to share":       func(o *opening) { o.request.Transforms = nil },
		"on_error = skip":        func(o *opening) { o.config.OnError = "skip" },
		"policy = naive":         func(o *opening) { o.config.Policy = "naive" },
		"different sizes": func(o *opening) {
			o.request.Transforms = json.RawMessage(`[{"name": "ImgDecode"}, {"name": "Ragged"}]`)
		},
		"in workers": func(o *opening) { o.request.Share.Unable = "in workers" },
	} {
		o := opening{config: &config.Config{OnError: "raise", Policy: "cooperative"}}
		o.request.WorldSize = 1
		o.request.Transforms = json.RawMessage(
			`[{"name": "ImgDecode"}, {"name": "CenterCrop", "size": 8}, {"name": "ToTensor"}]`)
		change(&o)
		if why := unshareable(o); !strings.Contains(why, says) || (why == "") != (says == "") {
			t.Errorf("%q: %q", says, why)
		}
	}
}
