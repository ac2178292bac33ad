// Package driver is the contract between a worker and what runs its machines:
// host processes, containers, VMs. A driver's tasks outlive the daemon; the
// driver is asked after a restart what is alive, and says how what ended did.
//
// Every driver passes the suite in driver/drivertest.
package driver

import (
	"context"
	"io"
	"time"

	"github.com/bourse-dev/bourse"
)

// TaskID names one run of one machine's program. The boot number makes Start
// idempotent: a repeated start of the same boot finds the first one's result.
type TaskID struct {
	Machine bourse.MachineID `json:"machine"`
	Boot    int              `json:"boot"` // 1 or more, growing
}

// Task is a program to run.
type Task struct {
	ID         TaskID   `json:"id"`
	Image      string   `json:"image"`                // "host", or registry/repository@digest of an image that the host has
	Command    []string `json:"command,omitempty"`    // the whole command line; looked up in PATH when it has no slash. Required without an image
	Entrypoint []string `json:"entrypoint,omitempty"` // instead of the image's, and of its Args; ignored with Command
	Args       []string `json:"args,omitempty"`       // after the entrypoint, instead of the image's; ignored with Command
	Env        []string `json:"env,omitempty"`        // "NAME=value", the whole environment, of an image: over its own
	Secrets    []string `json:"-"`                    // of an image: more of Env, over it, that is to be in no file of a disk
	Dir        string   `json:"dir,omitempty"`        // working directory; default the machine's or the image's own
	User       string   `json:"user,omitempty"`       // "user[:group]", names or numbers; default the daemon's own, or the image's
	Limits     Limits   `json:"limits"`
	Network    *Network `json:"network,omitempty"` // nil: the host's
	Mounts     []Mount  `json:"mounts,omitempty"`
	Devices    []string `json:"devices,omitempty"` // qualified CDI names, "vendor.com/class=name"
	Root       Root     `json:"root,omitzero"`     // of an image
	TTY        bool     `json:"tty,omitempty"`     // of an image: its output is one stream, a terminal's
	Name       string   `json:"name,omitempty"`    // the machine's, for who shows tasks to people
	Stdin      []byte   `json:"stdin,omitempty"`   // what its program reads there, then the end; at most MaxStdin. Not with TTY, nor of image pull
}

// MaxStdin bounds a task's Stdin, in bytes.
const MaxStdin = bourse.MaxPayload

// Network is the network that a task's processes see.
type Network struct {
	Namespace string   `json:"namespace"`          // path of a network namespace
	Hostname  string   `json:"hostname,omitempty"` // of an image
	Hosts     []string `json:"hosts,omitempty"`    // lines of /etc/hosts beside localhost's; of an image
	Resolver  []string `json:"resolver,omitempty"` // addresses of name servers, for /etc/resolv.conf
	Search    []string `json:"search,omitempty"`   // search domains
	Options   []string `json:"options,omitempty"`  // of resolv.conf
}

// Mount puts a directory of the host into a task's file system. For image
// host, Target has to exist.
type Mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// Root says how the root file system of an image is made.
type Root struct {
	Runtime  string `json:"runtime,omitempty"`   // of the container; default the driver's
	ReadOnly bool   `json:"read_only,omitempty"` //
	Scratch  string `json:"scratch,omitempty"`   // directory of the host that what the task writes goes to; default the driver's own
	Files    []File `json:"files,omitempty"`     // written into it before the program starts
}

// File is a file that is written before the program starts.
type File struct {
	Path   string `json:"path"`
	Data   []byte `json:"data,omitempty"`
	Mode   uint32 `json:"mode"`
	Secret bool   `json:"secret,omitempty"` // it is to be on no disk: the program finds it read-only
}

// Limits are what a task may use. 0 means no limit. What a host cannot
// enforce is left out of the driver's labels, and nothing is pretended.
type Limits struct {
	CPUWeight bourse.MilliCPU `json:"cpu_weight,omitempty"` // share under contention
	CPUQuota  bourse.MilliCPU `json:"cpu_quota,omitempty"`  // hard ceiling
	CPUPeriod time.Duration   `json:"cpu_period,omitempty"` // of the ceiling; 1 ms to 1 s, default 100 ms
	CPUBurst  time.Duration   `json:"cpu_burst,omitempty"`  // of unused time that may be saved up, at most one period's quota; see label "limit.cpu.burst"
	Memory    bourse.MiB      `json:"memory,omitempty"`
	PIDs      int             `json:"pids,omitempty"`
	Disk      bourse.MiB      `json:"disk,omitempty"` // of image pull: what its host must have
}

// Status is what a driver knows of a task.
type Status struct {
	ID        TaskID       `json:"id"`
	PID       int          `json:"pid,omitempty"`  // 0 once it has ended
	StartedAt time.Time    `json:"started_at"`     // stable: the same in every answer
	Exit      *bourse.Exit `json:"exit,omitempty"` // set once it has ended
}

// Driver runs tasks. All methods are safe for concurrent use and give up when
// ctx ends. Errors carry a bourse code:
//
//	not_found            no such task
//	invalid              the command does not exist, is not executable, no such user or directory
//	failed_precondition  the task has ended (Signal, Exec, Freeze), is frozen (Exec), or a newer boot exists or an older one still runs (Start)
//	unavailable          the driver's own machinery is gone; try again
type Driver interface {
	Lifecycle
	// Signal sends a signal to the task's main process.
	Signal(ctx context.Context, id TaskID, signal bourse.Signal) error
	// Exec runs a command beside the task, in its environment, directory and
	// limits, until it ends or ctx does (then its whole process group is
	// killed). A command that does not exist is CodeInvalid.
	Exec(ctx context.Context, id TaskID, exec Exec) (ExecResult, error)
	// Freeze halts all processes of a running task where they are, or lets them
	// go on. It is idempotent, and returns when they are so. They keep their memory,
	// and what is sent to them; Stop with SIGKILL and
	// Destroy end a frozen task without a further step of its program; Stop with
	// another signal lets it go on. CodeFailedPrecondition where the host cannot:
	// the label "suspend" is missing.
	Freeze(ctx context.Context, id TaskID, frozen bool) error
	// Usage tells what a running task uses now. CodeFailedPrecondition when
	// it has ended.
	Usage(ctx context.Context, id TaskID) (Usage, error)
	// Logs returns the machine's log lines, of all its boots, oldest first.
	// With Follow it goes on until ctx ends or the machine is destroyed.
	Logs(ctx context.Context, machine bourse.MachineID, want LogQuery, line func(LogLine) error) error
	// Labels are the facts of this driver on this host, for orders that
	// require them: "limit.memory": "cgroup", "rlimit" or absent.
	Labels() map[string]string
}

// Lifecycle is the part of a driver that the worker's state machines use.
type Lifecycle interface {
	// Recover is called once, before anything else, after the daemon has
	// started: it finds (or starts) the machinery and gives every task it
	// holds, running or ended and not yet destroyed.
	Recover(ctx context.Context) ([]Status, error)
	// Start runs a task. It is idempotent by task id: a second Start gives
	// the first's status, also when the task has ended meanwhile. A program
	// that cannot be started is CodeInvalid and leaves nothing behind.
	Start(ctx context.Context, task Task) (Status, error)
	// Inspect returns the status of a task.
	Inspect(ctx context.Context, id TaskID) (Status, error)
	// Wait blocks until the task has ended and its output has been written to
	// its log. A task whose fate no one knows any more has an Exit with Code
	// -1 and an Error.
	Wait(ctx context.Context, id TaskID) (bourse.Exit, error)
	// Stop sends signal to the task's process group, SIGKILL to all that is
	// left of it after timeout, and returns when nothing of it lives. A task
	// that has ended is no error. For a task with an image the signal may be
	// empty: the one that the image names, or SIGTERM.
	Stop(ctx context.Context, id TaskID, signal bourse.Signal, timeout time.Duration) error
	// Forget drops what is kept of an ended task's exit, once the worker has
	// recorded it. Unknown tasks are no error.
	Forget(ctx context.Context, id TaskID) error
	// Destroy kills whatever of the machine still runs and removes all that
	// the driver keeps of it: files, logs, limits. It is idempotent.
	Destroy(ctx context.Context, machine bourse.MachineID) error
}

// Finder is a Lifecycle that can say of which tasks there is anything on the
// host, before Recover and without changing anything: also of those that an
// empty directory of its own, as of a disk that is not mounted, has nothing of.
// Those that cannot have no such method.
type Finder interface {
	Found(ctx context.Context) ([]TaskID, error)
}

// Exec is a command to run beside a task.
type Exec struct {
	Command  []string
	Stdin    io.Reader // nil: empty
	Limit    int       // bytes kept of each output; 0 means 1 MiB
	Stdout   io.Writer // set: outputs are written there as they come, and none is kept
	Stderr   io.Writer // as Stdout; nothing is written to it with a terminal
	Terminal *Terminal // set: the command has a terminal. Stdout is required
}

// Terminal is the terminal of an Exec.
type Terminal struct {
	Size   Size
	Resize <-chan Size // nil: it keeps its size
	Term   string      // $TERM; default xterm
}

// Size is that of a terminal, in characters.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Usage is what a task uses. What the host does not account is negative.
type Usage struct {
	CPU       time.Duration `json:"cpu"`        // since it started
	Memory    int64         `json:"memory"`     // bytes now, without the page cache that can be dropped
	PIDs      int64         `json:"pids"`       // now
	ReadByte  int64         `json:"read_byte"`  // from disks, since it started
	WriteByte int64         `json:"write_byte"` // to disks, since it started
	Throttled time.Duration `json:"throttled"`  // time that its quota kept it waiting
}

// ExecResult is how an Exec ended.
type ExecResult struct {
	Exit   bourse.Exit
	Stdout []byte
	Stderr []byte
}

// LogQuery says which lines are wanted.
type LogQuery struct {
	After  string    // only lines behind the one of this position; "": as the others say
	Since  time.Time // zero: from the beginning
	Tail   int       // the last so many; 0: all, negative: none (with Follow: only new ones)
	Follow bool
}

// LogLine is one line of a machine's output, without its newline. A line that
// was longer than the log keeps in one piece comes as several, all but the
// last marked Partial; so is a last line that never ended.
type LogLine struct {
	At      time.Time `json:"at"`
	Stream  string    `json:"stream"` // "stdout" or "stderr"
	Text    string    `json:"text"`
	Partial bool      `json:"partial,omitempty"`

	// Position names the line in its machine's log, for LogQuery.After. It holds as
	// long as the machine is there, also for the next daemon.
	Position string `json:"position,omitempty"`
}

// ErrPosition is the error of a LogQuery whose After is no position.
func ErrPosition(after string) error {
	return bourse.Errorf(bourse.CodeInvalid, "%s is no position in a log", bourse.Quoted(after))
}
