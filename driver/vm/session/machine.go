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

// Device is a block device in the container around a virtual machine. Once the host no longer needs a device for the machine,
// the kernel can give the device's number to another one, with another sequence number.
type Device struct {
	Path     string `json:"path"`
	Sequence uint64 `json:"sequence"`
}

// The files of the VMM's process, besides stdin, stdout and stderr.
const (
	GuestFD    = 3 + iota // a socket for the guest's port
	MonitorFD             // a socket for the VMM's monitor
	SnapshotFD            // a pipe from which a resumed machine's state is read
)

// The controls of a machine: commands of the agent, and messages to its first process, which answers with a Report.
const (
	Suspend = "suspend" // write a snapshot and end the VMM
	Resume  = "resume"  // start the VMM from the snapshot; if that is impossible, the machine ends
)

// Refused is the exit code of "agent suspend" and "agent resume" if the machine could not be suspended, or has ended. After any other
// exit code except 0, the request can be repeated.
const Refused = 3

// Paths in the container around a virtual machine. The driver sees Dir as a directory of the task.
const (
	MachineFile = "/vmm/machine.json"
	Dir         = "/vmm/run"
	StatusFile  = Dir + "/" + Status // a Report, once the program has started or failed to start
	ExitFile    = Dir + "/" + Ended  // an Exit, if the guest was out of memory
	ExecSocket  = Dir + "/exec.sock" // "agent exec" connects to it

	ControlSocket = Dir + "/control.sock" // "agent suspend" and "agent resume" connect to it
)

// The names of the StatusFile and the ExitFile.
const (
	Status = "status.json"
	Ended  = "exit.json"
)

// ExecFile returns the path of a Program that "agent exec" runs.
func ExecFile(name string) string { return filepath.Join(Dir, name+".json") }

// ExecErrorFile returns the path of a Report that "agent exec" writes if the program was not started.
func ExecErrorFile(name string) string { return filepath.Join(Dir, name+".error.json") }

// TerminalReady is the first byte that "agent exec" writes to a terminal, once it has configured the terminal. The driver
// sends no input before.
const TerminalReady = 0

// GuestPort is the guest's end of the connection to the host.
const GuestPort = "/dev/vport0p1"

// Multiplexer returns the configuration of the connection's ends. No end gives up, because a guest
// or its host may be suspended.
func Multiplexer() *yamux.Config {
	c := yamux.DefaultConfig()
	c.EnableKeepAlive, c.ConnectionWriteTimeout = false, 1000*time.Hour
	c.StreamOpenTimeout, c.StreamCloseTimeout = 0, 0
	c.LogOutput = io.Discard // its errors end the sessions, which are reported
	return c
}
