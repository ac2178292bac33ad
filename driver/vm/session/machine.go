package session

import (
	"io"
	"path/filepath"
	"time"

	"github.com/hashicorp/yamux"
)

// Machine is the configuration of a virtual machine, which the driver writes to MachineFile.
type Machine struct {
	VMM         []string `json:"vmm"` // the command line
	Devices     []Device `json:"devices,omitempty"`
	Program     Program  `json:"program"`
	MaxSnapshot int64    `json:"max_snapshot"` // the maximum size of a snapshot in bytes
}

// Device is a block device in a virtual machine's container. After the host has detached the device, the kernel can
// reassign its device number to another device, which then has a different sequence number.
type Device struct {
	Path     string `json:"path"`
	Sequence uint64 `json:"sequence"`
}

// File descriptors that the VMM's process inherits, in addition to stdin, stdout and stderr.
const (
	GuestFD    = 3 + iota // a socket for the guest's port
	MonitorFD             // a socket for the VMM's monitor
	SnapshotFD            // a pipe from which a resumed machine's state is read
)

// Actions on a machine. Each is also the name of an agent command: "agent suspend" and "agent resume" send the action
// as a message to the first process in the machine's container, which answers with a Report.
const (
	Suspend = "suspend" // write a snapshot and kill the VMM
	Resume  = "resume"  // start the VMM from the snapshot; if the snapshot cannot be restored, the machine ends
)

// Refused is the exit code of "agent suspend" and "agent resume" if the machine cannot be suspended or resumed, or has
// ended. After any other exit code except 0, the caller may try again.
const Refused = 3

// Paths in a virtual machine's container. On the host, Dir is a directory in the task's directory.
const (
	MachineFile = "/vmm/machine.json"
	Dir         = "/vmm/run"
	StatusFile  = Dir + "/" + Status // a Report; exists once the program has started or failed to start
	ExitFile    = Dir + "/" + Ended  // an Exit; exists only if the guest was out of memory
	ExecSocket  = Dir + "/exec.sock" // "agent exec" connects to it

	ControlSocket = Dir + "/control.sock" // "agent suspend" and "agent resume" connect to it
)

// File names of StatusFile and ExitFile.
const (
	Status = "status.json"
	Ended  = "exit.json"
)

// ExecFile returns the path of the file from which "agent exec name" reads its Program.
func ExecFile(name string) string { return filepath.Join(Dir, name+".json") }

// ExecErrorFile returns the path of the file to which "agent exec name" writes a Report if the program was not started.
func ExecErrorFile(name string) string { return filepath.Join(Dir, name+".error.json") }

// TerminalReady is the first byte that "agent exec" writes to a terminal, after it has configured the terminal. The
// driver must not send input before it receives this byte.
const TerminalReady = 0

// GuestPort is the guest's device for the connection to the host.
const GuestPort = "/dev/vport0p1"

// Multiplexer returns the yamux configuration for both ends of the connection. It disables all timeouts, because the
// guest or the host may be suspended for any length of time.
func Multiplexer() *yamux.Config {
	c := yamux.DefaultConfig()
	c.EnableKeepAlive, c.ConnectionWriteTimeout = false, 1000*time.Hour
	c.StreamOpenTimeout, c.StreamCloseTimeout = 0, 0
	c.LogOutput = io.Discard // an error ends the sessions, and that is reported
	return c
}
