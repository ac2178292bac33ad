package replay

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/bourse-dev/bourse"
)

// jsonReplay is the JSON form of a replay.
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
		return nil, invalidf("the body has content encoding %s: send it without one", bourse.Quoted(e))
	}
	if len(body) > MaxBody {
		return nil, invalidf("the body exceeds %d bytes", MaxBody)
	}
	var w jsonReplay
	d := json.NewDecoder(strings.NewReader(string(body)))
	d.DisallowUnknownFields()
	if err := d.Decode(&w); err != nil {
		return nil, invalidf("the body is not a valid JSON replay: %s", err.Error())
	}
	if d.More() {
		return nil, invalidf("the body contains data after the JSON object")
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
			err = invalidf("cache.ttl is missing: set a number of seconds")
		default:
			r.Cache, err = newCacheRule(c.Prefix, *c.TTL, w.AllowBypass || c.AllowBypass)
		}
	}
	return r, err
}
