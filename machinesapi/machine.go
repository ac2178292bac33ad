package machinesapi

import (
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/workload"
)

// Machine is a machine in the Machines API.
type Machine struct {
	Summary
	Detail
	Placement
}

// Summary contains the fields of a machine in a summarized list.
type Summary struct {
	ID         bourse.MachineID  `json:"id"`
	Name       string            `json:"name"`
	State      bourse.State      `json:"state"`
	Region     bourse.Region     `json:"region"`
	InstanceID bourse.InstanceID `json:"instance_id"`
	Version    bourse.InstanceID `json:"version"` // the same value under its newer name
	PrivateIP  string            `json:"private_ip"`
	CreatedAt  string            `json:"created_at"` // RFC 3339, seconds, Z
	UpdatedAt  string            `json:"updated_at"`
	Cordoned   bool              `json:"cordoned"`
	ImageRef   bourse.ImageRef   `json:"image_ref"`
}

// Detail contains the other fields of the Machines API.
type Detail struct {
	// Config is the complete config, as it was sent. It is nil in a summary, and if only IncompleteConfig is known,
	// which lacks the environment, files, processes and containers. Only the machine's worker has those.
	Config           *bourse.Config `json:"config,omitempty"`
	IncompleteConfig *bourse.Config `json:"incomplete_config,omitempty"`

	Events     []Event              `json:"events,omitempty"` // newest first
	Checks     []bourse.CheckStatus `json:"checks,omitempty"` // in the order of the config
	HostStatus HostStatus           `json:"host_status,omitempty"`
	HostHeard  string               `json:"host_heard_at,omitempty"` // RFC 3339: time when the host was last reachable, if its status is not ok
	Nonce      string               `json:"nonce,omitempty"`         // in the reply to the creation of a machine with a lease
	Lease      *LeaseInfo           `json:"lease,omitempty"`         // if requested
}

// Known returns the config or the incomplete config, or nil in a summary.
func (d *Detail) Known() *bourse.Config {
	if d.Config != nil {
		return d.Config
	}
	return d.IncompleteConfig
}

// Placement contains Bourse's additions.
type Placement struct {
	App     bourse.AppName  `json:"app,omitempty"`
	Worker  bourse.WorkerID `json:"worker,omitempty"`
	OrderID bourse.OrderID  `json:"order_id,omitempty"` // the order that the machine fills
	Port    int             `json:"port,omitempty"`     // the value of its $PORT
	PID     int             `json:"pid,omitempty"`      // on the worker's host, while it is running
	Starts  int             `json:"starts,omitempty"`   // number of starts, including restarts
	Exit    *ExitEvent      `json:"exit,omitempty"`     // how it ended, until it is started again
	// StandsIn is the lost machine that this standby has replaced; see config.standbys.
	StandsIn bourse.MachineID `json:"stands_in,omitempty"`
	// NameConflict is an older machine of the app with the same name. It is shown in lists, with the machine itself,
	// and in the reply to its creation, as far as the broker's view knows.
	NameConflict bourse.MachineID `json:"name_conflict,omitempty"`
	// Warnings lists ignored fields of the request, in the reply to it. They are also in a header.
	Warnings []bourse.Warning `json:"warnings,omitempty"`
}

// HostStatus tells whether a machine's worker is reachable.
type HostStatus string

// Statuses of a host. Clients treat every status except ok as unreachable.
const (
	HostOK          HostStatus = "ok"          // its worker has just sent the machine, or is reachable
	HostUnreachable HostStatus = "unreachable" // its worker is not reachable, so the data may be out of date
	HostUnknown     HostStatus = "unknown"     // the broker has received nothing from it since the broker started
)

// FromMachine converts a machine with its events. The caller sets Nonce and Lease if they may be shown.
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

// SummaryOf converts a machine without its config and history.
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

// imageRef returns the image to which the machine's image was resolved, or otherwise its name.
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
	guest = guest.WithDefaults() // clients dereference it without a check
	config.Guest = &guest
	if workload.Validate(&config.Kept) != nil { // the row may come from a hostile worker
		config.Kept = bourse.Kept{}
	}
	return Detail{Config: &config, Events: FromEvents(m.LastEvents), Checks: workload.CheckStatuses(m), HostStatus: HostOK}
}

func seconds(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// ImageName returns the image to which a request refers. That is the name itself, except that it is "host" or "pull"
// for names that clients derive from these images when they clone a machine or resolve an image: with a tag, or with
// a digest, which these images do not have.
func ImageName(image string) string {
	bare, _, _ := strings.Cut(image, "@")
	for _, name := range []string{bourse.ImageHost, bourse.ImagePull} {
		if bare == name || bare == name+":"+bourse.DefaultTag || bare == "/"+name || bare == "/"+name+":"+bourse.DefaultTag {
			return name
		}
	}
	return image
}
