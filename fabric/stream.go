package fabric

import "github.com/bourse-dev/bourse/internal/duplex"

// Types for MachineAttach, which uses the frames of package duplex.
type (
	// ExecStart describes a command to run.
	ExecStart = duplex.Command
	// Terminal describes a command's terminal.
	Terminal = duplex.Terminal
	// Size is the size of a terminal.
	Size = duplex.Size
)
