package fabric

import "github.com/bourse-dev/bourse/internal/duplex"

// The words of MachineAttach; its frames are those of package duplex.
type (
	// ExecStart is what is to be run.
	ExecStart = duplex.Command
	// Terminal is the terminal that a command gets.
	Terminal = duplex.Terminal
	// Size is that of a terminal.
	Size = duplex.Size
)
