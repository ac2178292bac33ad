package machinesapi

import (
	"time"

	"github.com/bourse-dev/bourse"
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
	Config     *bourse.Config `json:"config,omitempty"` // nil in a summary only
	Events     []Event        `json:"events,omitempty"` // newest first
	HostStatus HostStatus     `json:"host_status,omitempty"`
	HostHeard  string         `json:"host_heard_at,omitempty"` // RFC 3339: when the host was last heard from, if it is not ok
	Nonce      string         `json:"nonce,omitempty"`         // of a machine created with a lease, in the reply to its creation
	Lease      *LeaseInfo     `json:"lease,omitempty"`         // when asked for
}

// Placement is what Bourse adds.
type Placement struct {
	App     bourse.AppName  `json:"app,omitempty"`
	Worker  bourse.WorkerID `json:"worker,omitempty"`
	OrderID bourse.OrderID  `json:"order_id,omitempty"` // that the machine fills
	Port    int             `json:"port,omitempty"`     // the value of its $PORT
	PID     int             `json:"pid,omitempty"`      // on the worker's host, while it runs
	// NameConflict is the machine of the app that has the same name, and has it
	// because it was ordered first; shown in lists, with the machine itself and
	// in the reply to its creation, as far as the broker's view knows.
	NameConflict bourse.MachineID `json:"name_conflict,omitempty"`
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
		App: m.App, Worker: m.Worker, OrderID: m.Order, Port: m.Boot.Port, PID: m.Boot.PID,
	}}
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
	config.Kept = config.Decodable()
	return Detail{Config: &config, Events: FromEvents(m.LastEvents), HostStatus: HostOK}
}

func seconds(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// ImageName returns the image that a request means: the name itself, but "host"
// or "pull" for the names that clients make of these images' parts when they clone a
// machine.
func ImageName(image string) string {
	for _, name := range []string{bourse.ImageHost, bourse.ImagePull} {
		if image == "/"+name || image == "/"+name+":"+bourse.DefaultTag {
			return name
		}
	}
	return image
}
