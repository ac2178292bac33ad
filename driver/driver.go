// Package driver defines the interface between a worker and the drivers that run its machines as
// host processes, containers or VMs. A driver's tasks outlive the daemon. After a restart, the
// driver reports which tasks are still running and how all other tasks ended.
//
// Every driver must pass the test suite in driver/drivertest.
package driver

import (
	"context"
	"io"
	"time"

	"github.com/bourse-dev/bourse"
)

// TaskID identifies one run of a machine's program. The boot number makes Start idempotent:
// repeating the start of a boot returns the result of the first start.
type TaskID struct {
	Machine bourse.MachineID `json:"machine"`
	Boot    int              `json:"boot"` // starts at 1 and increases with each boot of the machine
}

// Task is a program to run.
type Task struct {
	ID         TaskID   `json:"id"`
	Image      string   `json:"image"`                // "host", or registry/repository@digest of an image on the host
	Command    []string `json:"command,omitempty"`    // the whole command line; required if Image is "host"
	Entrypoint []string `json:"entrypoint,omitempty"` // replaces the image's entrypoint and arguments; ignored if Command is set
	Args       []string `json:"args,omitempty"`       // replace the image's arguments; ignored if Command is set
	Env        []string `json:"env,omitempty"`        // "NAME=value"; the whole environment, or with an image, variables that override the image's
	Secrets    []string `json:"-"`                    // images only: variables that override Env and are never written to a disk
	Dir        string   `json:"dir,omitempty"`        // working directory; default: the machine's or the image's
	User       string   `json:"user,omitempty"`       // "user[:group]", names or numbers; default: the daemon's user or the image's
	Limits     Limits   `json:"limits"`
	Network    *Network `json:"network,omitempty"` // nil: the host's network
	Mounts     []Mount  `json:"mounts,omitempty"`
	Devices    []string `json:"devices,omitempty"` // qualified CDI names, "vendor.com/class=name"
	Root       Root     `json:"root,omitzero"`     // images only
	TTY        bool     `json:"tty,omitempty"`     // images only: the program has a terminal, and its output is one stream
	Name       string   `json:"name,omitempty"`    // the machine's name, for tools that display tasks
	Stdin      []byte   `json:"stdin,omitempty"`   // the program's stdin, at most MaxStdin bytes; invalid with TTY or image "pull"
}

// MaxStdin is the maximum size of a task's Stdin in bytes.
const MaxStdin = bourse.MaxPayload

// Network configures the network that a task's processes see.
type Network struct {
	Namespace string   `json:"namespace"`          // path of a network namespace
	Hostname  string   `json:"hostname,omitempty"` // images only
	Hosts     []string `json:"hosts,omitempty"`    // images only: lines of /etc/hosts in addition to those for localhost
	Resolver  []string `json:"resolver,omitempty"` // addresses of name servers, for /etc/resolv.conf
	Search    []string `json:"search,omitempty"`   // search domains
	Options   []string `json:"options,omitempty"`  // options for resolv.conf
}

// Mount mounts a directory on the host into a task's file system. If the task's image is "host",
// Target must exist.
type Mount struct {
	Source   string `json:"source"` // for a virtual machine, a block device with an ext4 file system instead of a directory
	Target   string `json:"target"`
	ReadOnly bool   `json:"read_only,omitempty"`
}

// Root configures the root file system of a task with an image.
type Root struct {
	Runtime  string `json:"runtime,omitempty"` // the container runtime's name; default: the driver's
	ReadOnly bool   `json:"read_only,omitempty"`
	Scratch  string `json:"scratch,omitempty"` // host directory for the files that the task writes; default: the driver's
	Files    []File `json:"files,omitempty"`   // files to write before the program starts
}

// File is a file to write before the program starts.
type File struct {
	Path   string `json:"path"`
	Data   []byte `json:"data,omitempty"`
	Mode   uint32 `json:"mode"`
	Secret bool   `json:"secret,omitempty"` // if true, the file is never stored on a disk, and the program can only read it
}

// Limits are a task's resource limits. 0 means no limit. The driver's labels list the limits that
// the host can enforce.
type Limits struct {
	CPUWeight bourse.MilliCPU `json:"cpu_weight,omitempty"` // the task's share when processors are contended
	CPUQuota  bourse.MilliCPU `json:"cpu_quota,omitempty"`  // hard limit on processor time
	CPUPeriod time.Duration   `json:"cpu_period,omitempty"` // the period to which the quota applies; 1 ms to 1 s, default 100 ms
	CPUBurst  time.Duration   `json:"cpu_burst,omitempty"`  // unused time that may accumulate; at most what the quota allows in one period
	Memory    bourse.MiB      `json:"memory,omitempty"`
	PIDs      int             `json:"pids,omitempty"`
	Disk      bourse.MiB      `json:"disk,omitempty"` // image "pull" only: disk space that the poller's host must have
}

// Status describes a task.
type Status struct {
	ID        TaskID       `json:"id"`
	PID       int          `json:"pid,omitempty"`  // 0 once the task has ended
	StartedAt time.Time    `json:"started_at"`     // time of the start; never changes
	Exit      *bourse.Exit `json:"exit,omitempty"` // set once the task has ended
}

// Driver runs tasks. All methods are safe for concurrent use and return when ctx is done. Errors have a bourse code:
//
//	not_found            no such task
//	invalid              the command is missing or not executable, or the user or directory does not exist
//	failed_precondition  the task has ended (Signal, Exec, Freeze, Usage) or is frozen (Exec); or a newer boot exists or an older one is running (Start)
//	unavailable          the driver's own processes are unavailable; try again
type Driver interface {
	Lifecycle
	// Signal sends a signal to the task's main process.
	Signal(ctx context.Context, id TaskID, signal bourse.Signal) error
	// Exec runs a command with the task's environment, directory and limits, and returns when the command ends. If ctx
	// is done first, the command is killed together with its process group or session, depending on the driver. Exec
	// returns CodeInvalid if the command does not exist.
	Exec(ctx context.Context, id TaskID, exec Exec) (ExecResult, error)
	// Freeze suspends all processes of a running task, or resumes them if frozen is false. It is idempotent and returns
	// when all processes have been suspended or resumed. Suspended processes keep their memory, and data sent to them
	// is not lost. The driver may store the memory on a disk; if the memory cannot be restored, the task ends, and
	// Freeze returns CodeFailedPrecondition. Destroy, and Stop with SIGKILL, kill a frozen task without resuming its
	// program. Stop with any other signal resumes the task first. Freeze also returns CodeFailedPrecondition if the
	// host cannot freeze tasks, in which case Labels does not contain "suspend".
	Freeze(ctx context.Context, id TaskID, frozen bool) error
	// Usage returns the current resource usage of a running task. It returns CodeFailedPrecondition if the task has
	// ended.
	Usage(ctx context.Context, id TaskID) (Usage, error)
	// Logs calls line with the machine's log lines of all boots, oldest first. If want.Follow is set, it also waits for
	// new lines, until ctx is done or the machine is destroyed.
	Logs(ctx context.Context, machine bourse.MachineID, want LogQuery, line func(LogLine) error) error
	// Labels returns the capabilities of this driver on this host, which orders can require. For example, the label
	// "limit.memory" is "cgroup" if the driver can limit memory, and missing otherwise.
	Labels() map[string]string
}

// Lifecycle contains the methods that the worker's state machines use.
type Lifecycle interface {
	// Recover must be called once after the daemon has started, before all other methods. It finds or starts the
	// driver's own processes. It returns every running task, and every ended task whose machine was not destroyed.
	// Tasks whose exits were discarded may be missing.
	Recover(ctx context.Context) ([]Status, error)
	// Start starts a task. It is idempotent: a repeated Start with the same id returns the task's
	// status, even if the task has ended. It returns CodeInvalid if the program cannot be started; the driver then
	// removes everything that it created for the task.
	Start(ctx context.Context, task Task) (Status, error)
	// Inspect returns the status of a task.
	Inspect(ctx context.Context, id TaskID) (Status, error)
	// Wait blocks until the task has ended and its output has been logged. If the driver does not know how the task
	// ended, the Exit's Code is -1 and its Error is set.
	Wait(ctx context.Context, id TaskID) (bourse.Exit, error)
	// Stop sends signal to the task's process group, or, for a task with an image, only to its main process. If
	// processes are still running after timeout, Stop sends them SIGKILL. It returns when all of the task's processes
	// have ended, and returns nil if the task had already ended. For a task with an image, an empty signal means the
	// image's stop signal, or bourse.DefaultStopSignal if the image specifies none.
	Stop(ctx context.Context, id TaskID, signal bourse.Signal, timeout time.Duration) error
	// DiscardExit discards the exit of an ended task after the worker has recorded it. It does nothing for unknown tasks.
	DiscardExit(ctx context.Context, id TaskID) error
	// Destroy kills all of the machine's processes and removes all of the driver's data about the machine, such as
	// files, logs and cgroups. It is idempotent.
	Destroy(ctx context.Context, machine bourse.MachineID) error
}

// Finder is implemented by drivers that can list the tasks on the host without changing anything,
// even before Recover is called. The list includes tasks that are missing from the driver's
// directory, for example because its disk is not mounted.
type Finder interface {
	// Found returns the ids of the tasks on the host.
	Found(ctx context.Context) ([]TaskID, error)
}

// Exec is a command to run in a task's environment.
type Exec struct {
	Command  []string
	Stdin    io.Reader // nil: the command's stdin is empty
	Limit    int       // maximum number of bytes to return from each of stdout and stderr; 0: 1 MiB
	Stdout   io.Writer // if set, receives the output as it is written; the result then contains no output
	Stderr   io.Writer // like Stdout; unused if Terminal is set
	Terminal *Terminal // if set, the command has a terminal; Stdout is then required
}

// Terminal configures the terminal of an Exec.
type Terminal struct {
	Size   Size
	Resize <-chan Size // nil: the size does not change
	Term   string      // $TERM; default xterm
}

// Size is the size of a terminal in characters.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Usage is the resource usage of a task. Values that the host does not measure are negative.
type Usage struct {
	CPU       time.Duration `json:"cpu"`        // processor time since the start
	Memory    int64         `json:"memory"`     // bytes currently used, without reclaimable page cache
	PIDs      int64         `json:"pids"`       // current number of processes
	ReadByte  int64         `json:"read_byte"`  // bytes read from disks since the start
	WriteByte int64         `json:"write_byte"` // bytes written to disks since the start
	Throttled time.Duration `json:"throttled"`  // total time for which the task was throttled by its quota
}

// ExecResult is the result of an Exec.
type ExecResult struct {
	Exit   bourse.Exit
	Stdout []byte
	Stderr []byte
}

// LogQuery selects log lines.
type LogQuery struct {
	After  string    // only lines after this position; "": no restriction
	Since  time.Time // zero: from the beginning
	Tail   int       // return only the last Tail lines; 0: all; negative: none (with Follow: only new lines)
	Follow bool
}

// LogLine is one line of a machine's output, without its newline. A line that is too long for the
// log is split into several LogLines; all but the last are marked Partial. An unterminated last
// line is also Partial.
type LogLine struct {
	At      time.Time `json:"at"`
	Stream  string    `json:"stream"` // "stdout" or "stderr"
	Text    string    `json:"text"`
	Partial bool      `json:"partial,omitempty"`

	// Position identifies the line in its machine's log, for use in LogQuery.After. It is valid
	// until the machine is destroyed, even if the daemon restarts.
	Position string `json:"position,omitempty"`
}

// ErrPosition returns the error for a LogQuery whose After is invalid.
func ErrPosition(after string) error {
	return bourse.Errorf(bourse.CodeInvalid, "invalid log position %s", bourse.Quoted(after))
}
