package fabric

import (
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
)

// Verbs for a worker itself, its runs, and its copies of apps' records.
var (
	AppList = read[bourse.AppName, []bourse.App]("app/list") // returns the apps with this name, or all apps if the name is empty; includes deleted apps

	WorkerFacts = read[struct{}, bourse.Facts]("worker/facts", bourse.RoleWorker) // RoleWorker is allowed so that "bourse doctor" can query the worker on its own host
	// Takes effect before the worker replies; idempotent.
	WorkerCordon  = act[CordonRequest, bourse.Facts]("worker/cordon")
	WorkerMetrics = pipe[struct{}]("metrics", http.MethodGet, bourse.RoleScraper) // returns metrics in Prometheus' text format; any client may request them with an empty request
	RunList       = read[RunsQuery, []Run]("run/list")
	RunRetry      = act[string, Run]("run/retry")  // repeats the step of a stuck run
	RunSkip       = act[string, Run]("run/skip")   // continues a stuck run with its next step
	RunCancel     = act[string, Run]("run/cancel") // cancels a run
)

// CordonRequest makes a worker refuse new orders, or accept them again.
type CordonRequest struct {
	Cordon bool   `json:"cordon"`
	By     string `json:"by,omitempty"` // name of the caller's token
}

// RunsQuery selects runs.
type RunsQuery struct {
	Ended bool `json:"ended,omitempty"` // whether to include runs that have ended
}

// Run describes one of a worker's durable runs for display.
type Run struct {
	ID         string    `json:"id"`
	Definition string    `json:"definition"`
	Resource   string    `json:"resource"`
	Status     string    `json:"status"`
	Step       string    `json:"step,omitempty"`
	Attempt    int       `json:"attempt,omitempty"`
	NotBefore  time.Time `json:"not_before,omitzero"`
	Error      string    `json:"error,omitempty"`
	CreatedAt  time.Time `json:"created_at"`
	UpdatedAt  time.Time `json:"updated_at"`
}
