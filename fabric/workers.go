package fabric

import (
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
)

// The verbs about a worker itself, its runs, and the apps that it knows.
var (
	AppList = read[bourse.AppName, []bourse.App]("app/list") // of this name or, if it is empty, all; tombstones included

	WorkerFacts   = read[struct{}, bourse.Facts]("worker/facts")
	WorkerCordon  = act[CordonRequest, bourse.Facts]("worker/cordon")             // from the reply on it takes no orders, or takes them again; idempotent
	WorkerMetrics = pipe[struct{}]("metrics", http.MethodGet, bourse.RoleScraper) // Prometheus' text; asked for by any client, without a request
	RunList       = read[RunsQuery, []Run]("run/list")
	RunRetry      = act[string, Run]("run/retry")  // a stuck run tries its step again
	RunSkip       = act[string, Run]("run/skip")   // a stuck run goes on with its next step
	RunCancel     = act[string, Run]("run/cancel") // a run ends
)

// CordonRequest has a worker refuse new orders, or take them again.
type CordonRequest struct {
	Cordon bool   `json:"cordon"`
	By     string `json:"by,omitempty"` // the name of the token that asks
}

// RunsQuery selects runs.
type RunsQuery struct {
	Ended bool `json:"ended,omitempty"` // also those that have ended
}

// Run is a worker's durable run, for people who ask what it is doing.
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
