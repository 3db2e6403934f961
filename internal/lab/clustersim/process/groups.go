package process

import (
	"log/slog"

	"github.com/hdmlp/hdmlp/internal/node"
	"github.com/hdmlp/hdmlp/internal/node/groups"
)

// Groups returns the groups that processes of a node may be in.
func Groups(log *slog.Logger) node.Groups { return groups.New(log) }
