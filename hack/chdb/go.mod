module github.com/custody-project/custody/hack/chdb

go 1.26.0

require github.com/ebitengine/purego v0.11.3
