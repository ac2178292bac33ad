package replay

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/bourse-dev/bourse"
)

// wire is a replay in JSON.
type jsonReplay struct {
	Region         string    `json:"region"`
	Instance       string    `json:"instance"`
	PreferInstance string    `json:"prefer_instance"`
	App            string    `json:"app"`
	State          string    `json:"state"`
	Elsewhere      bool      `json:"elsewhere"`
	Timeout        string    `json:"timeout"`
	Fallback       string    `json:"fallback"`
	AllowBypass    bool      `json:"allow_bypass"`
	Transform      Transform `json:"transform"`
	Cache          *struct {
		Prefix      string `json:"prefix"`
		TTL         *int64 `json:"ttl"`
		Invalidate  bool   `json:"invalidate"`
		AllowBypass bool   `json:"allow_bypass"`
	} `json:"cache"`
}

func parseJSON(h http.Header, body []byte) (*Replay, error) {
	if e := h.Get("Content-Encoding"); e != "" && e != "identity" {
		return nil, invalidf("a body that is encoded (%s): send it as it is", bourse.Quoted(e))
	}
	if len(body) > MaxBody {
		return nil, invalidf("a body of more than %d bytes", MaxBody)
	}
	var w jsonReplay
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil {
		return nil, invalidf("the body is no replay in JSON: %s", err.Error())
	}
	if d.More() {
		return nil, invalidf("the body goes on after its JSON")
	}
	r := &Replay{
		Instance: bourse.MachineID(strings.ToLower(w.Instance)), PreferInstance: bourse.MachineID(strings.ToLower(w.PreferInstance)),
		App: bourse.AppName(w.App), State: w.State, Elsewhere: w.Elsewhere, Fallback: Fallback(w.Fallback), Transform: w.Transform,
	}
	var err error
	if w.Region != "" {
		r.Regions, err = regions(w.Region)
	}
	if w.Timeout != "" && err == nil {
		r.Timeout, err = timeout(w.Timeout)
	}
	if c := w.Cache; c != nil && err == nil {
		switch {
		case c.Invalidate:
			r.Cache.Invalidate = true
		case c.TTL == nil:
			err = invalidf("cache.ttl: want a number of seconds")
		default:
			r.Cache, err = newCacheRule(c.Prefix, *c.TTL, w.AllowBypass || c.AllowBypass)
		}
	}
	return r, err
}
