package flycompat

import (
	"net/http"

	"github.com/bourse-dev/bourse"
)

// build is a record of a build. Bourse does not build images and does not store these records.
// However, flyctl announces every image, and prints a warning if that fails.
type build struct {
	ID     int64  `json:"id"`
	Status string `json:"status"`
	Took   int    `json:"wallclock_time_ms"`
}

// buildRequest contains the fields of a build request that this package uses.
type buildRequest struct {
	App    bourse.AppName `json:"app_name"`
	ID     int64          `json:"build_id"`
	Status string         `json:"status"`
}

// createBuild serves POST /api/v1/builds.
func createBuild(c *caller, w http.ResponseWriter, r *http.Request) error {
	in, err := readBuild(c, w, r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, build{ID: max(in.ID, 1), Status: "started"})
}

// finishBuild serves POST /api/v1/builds/finish.
func finishBuild(c *caller, w http.ResponseWriter, r *http.Request) error {
	in, err := readBuild(c, w, r)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, build{ID: max(in.ID, 1), Status: in.Status})
}

// readBuild reads a request about a build, and checks that the caller may use its app.
// Errors: invalid; not_found if there is no such app.
func readBuild(c *caller, w http.ResponseWriter, r *http.Request) (buildRequest, error) {
	var in buildRequest
	if err := decode(w, r, &in); err != nil {
		return in, err
	}
	if len(in.Status) > 64 {
		in.Status = ""
	}
	_, err := c.appOf(r.Context(), in.App)
	return in, err
}
