package machinesapi

import (
	"hash/fnv"
	"math"

	"github.com/bourse-dev/bourse"
)

// App is an app in the Machines API.
type App struct {
	ID           string         `json:"id"`
	Name         bourse.AppName `json:"name"`
	NumericID    int32          `json:"internal_numeric_id"` // derived from the ID; never 0
	Network      string         `json:"network"`
	Status       AppStatus      `json:"status"`
	MachineCount int64          `json:"machine_count"` // number of machines that are not destroyed
	VolumeCount  int64          `json:"volume_count"`
	Organization Organization   `json:"organization"`
	CreatedAt    int64          `json:"created_at"` // milliseconds since 1970
}

// AppStatus describes whether an app has machines.
type AppStatus string

// Statuses of an app.
const (
	AppPending   AppStatus = "pending" // the app has no machines yet
	AppDeployed  AppStatus = "deployed"
	AppSuspended AppStatus = "suspended" // the app has releases, but no machines
)

// Organization is an app's owner. Bourse identifies organizations only by their slugs.
type Organization struct {
	Name      string `json:"name"`
	Slug      string `json:"slug"`
	NumericID int32  `json:"internal_numeric_id"`
}

// FromApp converts an app to the API's type, with the given machine and volume counts.
func FromApp(a bourse.App, machines, volumes int) App {
	status := AppPending
	if machines > 0 {
		status = AppDeployed
	}
	return App{
		ID: a.ID, Name: a.Name, NumericID: numericID(a.ID), Network: a.Network, Status: status, MachineCount: int64(machines), VolumeCount: int64(volumes),
		Organization: Organization{Name: a.Org, Slug: a.Org, NumericID: numericID(a.Org)},
		CreatedAt:    max(0, a.CreatedAt.UnixMilli()), // 0 for an app without a record
	}
}

// numericID derives a positive number from an app's ID, for old clients that require one.
func numericID(id string) int32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // writing to a hash never fails
	return int32(h.Sum32()%math.MaxInt32) + 1
}

// CreateApp is the body of a request to create an app.
type CreateApp struct {
	Name    bourse.AppName `json:"name,omitempty"`
	AppName bourse.AppName `json:"app_name,omitempty"` // older name of the field Name
	Org     string         `json:"org_slug,omitempty"` // default "personal"
	Network string         `json:"network,omitempty"`
	// IdempotencyKey identifies the request. Another request with the same key returns the app that
	// the first one created.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
}

// AppList is a list of apps.
type AppList struct {
	Apps  []App `json:"apps"`
	Total int   `json:"total_apps"`
}
