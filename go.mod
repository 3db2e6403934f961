module github.com/hdmlp/hdmlp

go 1.26
