package market

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/bourse-dev/bourse"
)

// Policy determines how workers are ranked. It is data: a set of curves with a name.
type Policy struct {
	Name    string
	Version string          // first 12 hex digits of the SHA-256 hash of Text; the same text has the same version everywhere
	Text    json.RawMessage // the JSON document, without insignificant white space
	Curves  *CurveSet
}

// String returns the policy's name and version as name@version, which is how decisions refer to the policy.
func (p *Policy) String() string { return p.Name + "@" + p.Version }

// maxPolicy is the maximum size of a policy's document, in bytes.
const maxPolicy = 64 << 10

// bases contains the curve sets that a policy can be based on.
var bases = map[string]func() *CurveSet{
	"default":  DefaultCurves,
	"best-fit": bestFit,
	"spread":   emptiest,
	"random":   func() *CurveSet { return &CurveSet{PullRate: DefaultCurves().PullRate} },
}

// bestFit returns curves that prefer the fullest worker, and score nothing else.
func bestFit() *CurveSet {
	return &CurveSet{Resources: byUtilization([]Point{{0, 0}, {1, 1}}), PullRate: DefaultCurves().PullRate}
}

// emptiest returns the default curves, except that the emptiest worker is preferred.
func emptiest() *CurveSet {
	set := DefaultCurves()
	set.Resources, set.Stranded, set.Position = byUtilization([]Point{{0, 1}, {1, 0}}), Curve{}, Curve{}
	return set
}

// byUtilization returns curves with the given points for all resources.
func byUtilization(points []Point) map[bourse.Resource]Curve {
	return map[bourse.Resource]Curve{
		bourse.ResourceCPU: {1, points}, bourse.ResourceMemory: {1, points}, bourse.ResourceDisk: {0.5, points},
		AnyGPU: {2, points}, AnyResource: {1, points},
	}
}

// ParsePolicy decodes a policy's document, which is a JSON object:
//
//	{"name": "gpus-first", "base": "default", "curves": {"resources": {"gpu.*": {"weight": 8, "points": [[0, 0], [1, 1]]}}}}
//
// The base is default, best-fit, spread or random; it may be omitted, which means default. Each
// curve in the document replaces the whole curve of the base. ParsePolicy returns CodeInvalid if the
// document contains unknown fields or invalid values.
func ParsePolicy(text []byte) (*Policy, error) {
	var doc struct {
		Name   string `json:"name"`
		Base   string `json:"base"`
		Curves struct {
			Resources map[bourse.Resource]Curve `json:"resources"`
			Image     *Curve                    `json:"image"`
			Spread    *Curve                    `json:"spread"`
			Load      *Curve                    `json:"load"`
			Stranded  *Curve                    `json:"stranded"`
			Position  *Curve                    `json:"position"`
			PullRate  *float64                  `json:"pull_rate"`
		} `json:"curves"`
	}
	if len(text) > maxPolicy {
		return nil, bourse.Errorf(bourse.CodeInvalid, "policy: %d bytes, at most %d", len(text), maxPolicy)
	}
	if !utf8.Valid(text) {
		return nil, bourse.Errorf(bourse.CodeInvalid, "policy: the text is not UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&doc); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "policy: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, bourse.Errorf(bourse.CodeInvalid, "policy: text after the JSON object")
	}
	if bourse.WorkerID(doc.Name).Validate() != nil { // policies and workers follow the same naming rules
		return nil, bourse.Errorf(bourse.CodeInvalid, "policy: name %s: use 1 to 63 of a-z, 0-9 and \"-\"", bourse.Quoted(doc.Name))
	}
	if doc.Base == "" {
		doc.Base = "default"
	}
	base := bases[doc.Base]
	if base == nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "policy: base %s: use %s", bourse.Quoted(doc.Base), strings.Join(slices.Sorted(maps.Keys(bases)), ", "))
	}
	set := base()
	if set.Resources == nil {
		set.Resources = map[bourse.Resource]Curve{}
	}
	maps.Copy(set.Resources, doc.Curves.Resources)
	replace(&set.Image, doc.Curves.Image)
	replace(&set.Spread, doc.Curves.Spread)
	replace(&set.Load, doc.Curves.Load)
	replace(&set.Stranded, doc.Curves.Stranded)
	replace(&set.Position, doc.Curves.Position)
	replace(&set.PullRate, doc.Curves.PullRate)
	if err := set.Validate(); err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil { // cannot fail, because the text was decoded
		return nil, bourse.Errorf(bourse.CodeInvalid, "policy: %w", err)
	}
	hash := sha256.Sum256(compact.Bytes())
	return &Policy{Name: doc.Name, Version: hex.EncodeToString(hash[:6]), Text: compact.Bytes(), Curves: set}, nil
}

func replace[T any](to, by *T) {
	if by != nil {
		*to = *by
	}
}

// AllRegions stands for all regions that have no policy of their own.
const AllRegions bourse.Region = ""

// Policies contains the policies that rank workers, and the shadow policies that they are compared with. It must not
// be modified.
type Policies struct {
	byRegion, shadowByRegion map[bourse.Region]*Policy
	curves, shadowCurves     Curves
}

// NewPolicies creates a Policies from the policies and the shadow policies of regions. A region without a policy uses
// the policy of AllRegions or, if there is none, the default curves. A region without a shadow policy uses the shadow
// policy of AllRegions, if there is one.
func NewPolicies(rank, shadow map[bourse.Region]*Policy) *Policies {
	p := &Policies{byRegion: rank, shadowByRegion: shadow}
	p.curves.Default = DefaultCurves()
	p.curves.use(rank)
	p.shadowCurves = p.curves
	if shadow[AllRegions] == nil { // a region without a shadow policy keeps its current curves
		p.shadowCurves.Regions = maps.Clone(p.curves.Regions)
	} else {
		p.shadowCurves.Regions = nil
	}
	p.shadowCurves.use(shadow)
	return p
}

// use sets the curves of the regions that have policies. If AllRegions has a policy, use sets the default curves.
func (c *Curves) use(policies map[bourse.Region]*Policy) {
	for r, p := range policies {
		if r == AllRegions {
			c.Default = p.Curves
			continue
		}
		if c.Regions == nil {
			c.Regions = map[bourse.Region]*CurveSet{}
		}
		c.Regions[r] = p.Curves
	}
}

// nameOf returns the name and version of the policy that applies to a region, or "" if there is none.
func nameOf(policies map[bourse.Region]*Policy, r bourse.Region) string {
	p := policies[r]
	if p == nil {
		p = policies[AllRegions]
	}
	if p == nil {
		return ""
	}
	return p.String()
}
