package machinesapi

import "github.com/bourse-dev/bourse"

// OrgMachines is a page of an organization's machines, the most recently changed last.
type OrgMachines struct {
	Machines     []OrgMachine     `json:"machines"`
	NextCursor   string           `json:"next_cursor"` // cursor of the next page; "" on the last page
	LastID       bourse.MachineID `json:"last_machine_id"`
	LastUpdated  string           `json:"last_updated_at"` // RFC 3339
	ErrorRegions []bourse.Region  `json:"error_regions"`   // regions of workers that did not answer
}

// OrgMachine is a machine in an organization's list.
type OrgMachine struct {
	ID        bourse.MachineID  `json:"id"`
	Name      string            `json:"name"`
	App       bourse.AppName    `json:"app_name"`
	Region    bourse.Region     `json:"region"`
	State     bourse.State      `json:"state"`
	Version   bourse.InstanceID `json:"version"`
	PrivateIP string            `json:"private_ip"`
	CreatedAt string            `json:"created_at"`
	UpdatedAt string            `json:"updated_at"`
	Config    OrgMachineConfig  `json:"config"`
}

// OrgMachineConfig contains the parts of a config that an organization's list includes.
type OrgMachineConfig struct {
	Image    string            `json:"image"`
	Guest    bourse.Guest      `json:"guest"`
	Metadata map[string]string `json:"metadata,omitempty"`
}

// OrgMachineOf converts a machine for an organization's list.
func OrgMachineOf(m *bourse.Machine) OrgMachine {
	s, guest := summary(m), bourse.Guest{}
	if m.Config.Guest != nil {
		guest = *m.Config.Guest
	}
	return OrgMachine{
		ID: s.ID, Name: s.Name, App: m.App, Region: s.Region, State: s.State, Version: s.Version, PrivateIP: s.PrivateIP,
		CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
		Config: OrgMachineConfig{Image: m.Config.Image, Guest: guest.WithDefaults(), Metadata: m.Config.Metadata},
	}
}
