package lookup

import (
	"bytes"
	"encoding/json"

	"github.com/bourse-dev/bourse"
)

// Quota is what an organization or an app may have. Zero fields mean the
// default.
type Quota struct {
	Machines        int   `json:"machines,omitempty"`
	OrdersPerSecond int   `json:"orders_per_second,omitempty"` // of every kind, quotes included
	Apps            int   `json:"apps,omitempty"`              // organizations only
	Volumes         int   `json:"volumes,omitempty"`           // apps only
	Secrets         int   `json:"secrets,omitempty"`           // apps only
	ConfigBytes     int64 `json:"config_bytes,omitempty"`      // apps only: of all its machines' configs, as the view has them
}

// Quotas are the quotas of a broker, from a file. Its zero value has the defaults
// alone.
type Quotas struct {
	Org  Quota            `json:"org"`  // of each organization
	App  Quota            `json:"app"`  // of each app
	Orgs map[string]Quota `json:"orgs"` // of one, by its slug
	Apps map[string]Quota `json:"apps"` // of one, by its name
}

// What no one meets by accident.
var (
	defaultOrgQuota = Quota{Machines: 100_000, OrdersPerSecond: 20_000, Apps: 10_000}
	defaultAppQuota = Quota{Machines: 20_000, OrdersPerSecond: 10_000, Volumes: 10_000, Secrets: 256, ConfigBytes: 512 << 20}
)

// Read reads a file of quotas. Codes: invalid.
func Read(text []byte) (Quotas, error) {
	var q Quotas
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return Quotas{}, bourse.Errorf(bourse.CodeInvalid, "quotas: %w", err)
	}
	if d.More() {
		return Quotas{}, bourse.Errorf(bourse.CodeInvalid, "quotas: there is more than one value")
	}
	all := []Quota{q.Org, q.App}
	for _, one := range q.Orgs {
		all = append(all, one)
	}
	for _, one := range q.Apps {
		all = append(all, one)
	}
	for _, one := range all {
		if min(one.Machines, one.OrdersPerSecond, one.Apps, one.Volumes, one.Secrets) < 0 || one.ConfigBytes < 0 {
			return Quotas{}, bourse.Errorf(bourse.CodeInvalid, "quotas: a number is negative")
		}
	}
	return q, nil
}

func (q *Quotas) ofOrg(org string) Quota {
	return q.Orgs[org].or(q.Org).or(defaultOrgQuota)
}

func (q *Quotas) ofApp(app bourse.AppName) Quota {
	return q.Apps[string(app)].or(q.App).or(defaultAppQuota)
}

// or returns q with what it leaves out taken from d.
func (q Quota) or(d Quota) Quota {
	if q.Machines == 0 {
		q.Machines = d.Machines
	}
	if q.OrdersPerSecond == 0 {
		q.OrdersPerSecond = d.OrdersPerSecond
	}
	if q.Apps == 0 {
		q.Apps = d.Apps
	}
	if q.Volumes == 0 {
		q.Volumes = d.Volumes
	}
	if q.Secrets == 0 {
		q.Secrets = d.Secrets
	}
	if q.ConfigBytes == 0 {
		q.ConfigBytes = d.ConfigBytes
	}
	return q
}

// exceeded refuses what would exceed a quota of so many things.
func exceeded(whose, name string, limit int64, what string) error {
	return bourse.Errorf(bourse.CodeForbidden, "quota exceeded: %s %s may have %d %s", whose, bourse.Quoted(name), limit, what)
}
