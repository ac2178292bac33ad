package machinesapi

import (
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// Machine is a machine as the Machines API shows it.
type Machine struct {
	Summary
	Detail
	Placement
}

// Summary is what a summarised list shows of a machine.
type Summary struct {
	ID         bourse.MachineID  `json:"id"`
	Name       string            `json:"name"`
	State      bourse.State      `json:"state"`
	Region     bourse.Region     `json:"region"`
	InstanceID bourse.InstanceID `json:"instance_id"`
	Version    bourse.InstanceID `json:"version"` // the same again, under its newer name
	PrivateIP  string            `json:"private_ip"`
	CreatedAt  string            `json:"created_at"` // RFC 3339, seconds, Z
	UpdatedAt  string            `json:"updated_at"`
	Cordoned   bool              `json:"cordoned"`
	ImageRef   bourse.ImageRef   `json:"image_ref"`
}

// Detail is the other fields of the Machines API.
type Detail struct {
	// Config is all of it, as it was sent. It is nil in a summary, and where only
	// IncompleteConfig is known: without environment, files, processes and
	// containers, which only the machine's worker has.
	Config           *bourse.Config `json:"config,omitempty"`
	IncompleteConfig *bourse.Config `json:"incomplete_config,omitempty"`

	Events     []Event              `json:"events,omitempty"` // newest first
	Checks     []bourse.CheckStatus `json:"checks,omitempty"` // in the order of the config, when it has any
	HostStatus HostStatus           `json:"host_status,omitempty"`
	HostHeard  string               `json:"host_heard_at,omitempty"` // RFC 3339: when the host was last heard from, if it is not ok
	Nonce      string               `json:"nonce,omitempty"`         // of a machine created with a lease, in the reply to its creation
	Lease      *LeaseInfo           `json:"lease,omitempty"`         // when asked for
}

// Known returns as much of the machine's config as the reply has; nil in a
// summary.
func (d *Detail) Known() *bourse.Config {
	if d.Config != nil {
		return d.Config
	}
	return d.IncompleteConfig
}

// Placement is what Bourse adds.
type Placement struct {
	App     bourse.AppName  `json:"app,omitempty"`
	Worker  bourse.WorkerID `json:"worker,omitempty"`
	OrderID bourse.OrderID  `json:"order_id,omitempty"` // that the machine fills
	Port    int             `json:"port,omitempty"`     // the value of its $PORT
	PID     int             `json:"pid,omitempty"`      // on the worker's host, while it runs
	Starts  int             `json:"starts,omitempty"`   // so far: one more than its restarts, by whomever
	Exit    *ExitEvent      `json:"exit,omitempty"`     // how it ended, until it starts again
	// StandsIn is the machine that this one has stood in for since it was lost; see
	// config.standbys.
	StandsIn bourse.MachineID `json:"stands_in,omitempty"`
	// NameConflict is the machine of the app that has the same name, and has it
	// because it was ordered first; shown in lists, with the machine itself and
	// in the reply to its creation, as far as the broker's view knows.
	NameConflict bourse.MachineID `json:"name_conflict,omitempty"`
	// Warnings are about members of the request that are not acted on, in the
	// reply to it; a header has them too.
	Warnings []bourse.Warning `json:"warnings,omitempty"`
}

// HostStatus is whether a machine's worker answers.
type HostStatus string

// The statuses of a host. Clients take anything but ok as a host that cannot
// be reached.
const (
	HostOK          HostStatus = "ok"          // its worker sent the machine, or is alive
	HostUnreachable HostStatus = "unreachable" // it is not heard from: the machine's data is old
	HostUnknown     HostStatus = "unknown"     // the broker has not received anything about it since its own start
)

// FromMachine converts a machine with its events. Nonce and Lease are left to the
// caller, which knows whether they may be shown.
func FromMachine(m *bourse.Machine) Machine {
	return Machine{Summary: summary(m), Detail: detail(m), Placement: Placement{
		App: m.App, Worker: m.Worker, OrderID: m.Order, Port: m.Boot.Port, PID: m.Boot.PID, Starts: m.Boot.Number, Exit: exitOf(m),
		StandsIn: m.Boot.StandsIn,
	}}
}

func exitOf(m *bourse.Machine) *ExitEvent {
	if m.Boot.Exit == nil {
		return nil
	}
	return fromExit(&bourse.ExitEvent{Exit: *m.Boot.Exit, RequestedStop: m.Boot.Requested, Restarting: m.State == bourse.StateRestarting})
}

// SummaryOf shows a machine without its config and history.
func SummaryOf(m *bourse.Machine) Machine {
	return Machine{Summary: summary(m), Placement: Placement{App: m.App, Worker: m.Worker, OrderID: m.Order}}
}

func summary(m *bourse.Machine) Summary {
	return Summary{
		ID: m.ID, Name: m.Name, State: m.State, Region: m.Region, InstanceID: m.Instance, Version: m.Instance,
		PrivateIP: privateIP(m), CreatedAt: seconds(m.CreatedAt), UpdatedAt: seconds(m.UpdatedAt), Cordoned: m.Cordoned, ImageRef: imageRef(m),
	}
}

func privateIP(m *bourse.Machine) string {
	if !m.PrivateIP.IsValid() {
		return ""
	}
	return m.PrivateIP.String()
}

// imageRef returns what the machine's image was resolved to, or its name.
func imageRef(m *bourse.Machine) bourse.ImageRef {
	if m.Image != nil {
		return *m.Image
	}
	return bourse.ParseImageRef(m.Config.Image)
}

func detail(m *bourse.Machine) Detail {
	config := m.Config
	guest := bourse.Guest{}
	if config.Guest != nil {
		guest = *config.Guest
	}
	guest = guest.WithDefaults() // clients read it without a check
	config.Guest = &guest
	if workload.Validate(&config.Kept) != nil { // the row of a hostile worker
		config.Kept = bourse.Kept{}
	}
	return Detail{Config: &config, Events: FromEvents(m.LastEvents), Checks: workload.CheckStatuses(m), HostStatus: HostOK}
}

func seconds(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// ImageName returns the image that a request means: the name itself, but "host"
// or "pull" for the names that clients make of these images' parts when they clone a
// machine, or have asked what an image is: with a digest, which these do not have.
func ImageName(image string) string {
	bare, _, _ := strings.Cut(image, "@")
	for _, name := range []string{bourse.ImageHost, bourse.ImagePull} {
		if bare == name || bare == name+":"+bourse.DefaultTag || bare == "/"+name || bare == "/"+name+":"+bourse.DefaultTag {
			return name
		}
	}
	return image
}
