GO ?= go
build: ; CGO_ENABLED=0 $(GO) build -o python/hdmlp/bin/hdmlp ./cmd/hdmlp
