package lookup

import (
	"bytes"
	"encoding/json"

	"github.com/bourse-dev/bourse"
)

// Quota limits the resources of an organization or an app. A zero field means the default limit.
type Quota struct {
	Machines        int `json:"machines,omitempty"`
	OrdersPerSecond int `json:"orders_per_second,omitempty"` // orders of any kind, including quotes
	Apps            int `json:"apps,omitempty"`              // for organizations only
	Volumes         int `json:"volumes,omitempty"`           // for apps only
	Secrets         int `json:"secrets,omitempty"`           // for apps only
	// For apps only: total size of the app's machine configs in the view.
	ConfigBytes int64 `json:"config_bytes,omitempty"`
}

// Quotas contains a broker's quotas, which are read from a file. The zero value contains only the
// defaults.
type Quotas struct {
	Org  Quota            `json:"org"`  // default for organizations
	App  Quota            `json:"app"`  // default for apps
	Orgs map[string]Quota `json:"orgs"` // for individual organizations, by slug
	Apps map[string]Quota `json:"apps"` // for individual apps, by name
}

// Default quotas. They are large enough that users rarely reach them by accident.
var (
	defaultOrgQuota = Quota{Machines: 100_000, OrdersPerSecond: 20_000, Apps: 10_000}
	defaultAppQuota = Quota{Machines: 20_000, OrdersPerSecond: 10_000, Volumes: 10_000, Secrets: 256, ConfigBytes: 512 << 20}
)

// Read parses a quotas file. Errors: invalid.
func Read(text []byte) (Quotas, error) {
	var q Quotas
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		return Quotas{}, bourse.Errorf(bourse.CodeInvalid, "quotas: %w", err)
	}
	if d.More() {
		return Quotas{}, bourse.Errorf(bourse.CodeInvalid, "quotas: the file contains more than one JSON value")
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
	return q.Orgs[org].withDefaults(q.Org).withDefaults(defaultOrgQuota)
}

func (q *Quotas) ofApp(app bourse.AppName) Quota {
	return q.Apps[string(app)].withDefaults(q.App).withDefaults(defaultAppQuota)
}

// withDefaults returns a copy of q with zero fields set from d.
func (q Quota) withDefaults(d Quota) Quota {
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

// exceeded returns the error for a request that would exceed a quota.
func exceeded(whose, name string, limit int64, what string) error {
	return bourse.Errorf(bourse.CodeForbidden, "quota exceeded: %s %s may have %d %s", whose, bourse.Quoted(name), limit, what)
}
