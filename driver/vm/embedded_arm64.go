package vm

import "embed"

// guest contains the agent if "make build" has built it.
//
//go:embed all:guest/arm64
var guest embed.FS
