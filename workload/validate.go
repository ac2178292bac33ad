package workload

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// field is a field of what a config keeps, and its shape.
type field struct {
	name  string // empty: the members that have no field of their own
	value *json.RawMessage
	check func([]byte) error
}

func fields(k *bourse.Kept) []field {
	return []field{
		{"services", &k.Services, shaped[[]service]},
		{"checks", &k.Checks, shapedChecks},
		{"processes", &k.Processes, shaped[[]process]},
		{"containers", &k.Containers, shaped[[]*container]},
		{"volumes", &k.Volumes, shaped[[]*volume]},
		{"metrics", &k.Metrics, shaped[*metrics]},
		{"schedule", &k.Schedule, shaped[string]},
		{"standbys", &k.Standbys, shaped[[]string]},
		{"dns", &k.DNS, shaped[*dns]},
		{"statics", &k.Statics, shaped[[]*static]},
		{"", &k.Rest, shaped[rest]},
	}
}

// Validate reports CodeInvalid, with the path of the value, when a field has not
// the shape that clients know.
func Validate(k *bourse.Kept) error {
	for _, f := range fields(k) {
		if len(*f.value) == 0 {
			continue
		}
		if err := f.check(*f.value); err != nil {
			return below(strings.TrimSuffix("config."+f.name, "."), err).invalid()
		}
	}
	return nil
}

// Decodable returns k without the fields that clients could not decode: an older
// release stored whatever came.
func Decodable(k bourse.Kept) bourse.Kept {
	for _, f := range fields(&k) {
		if len(*f.value) > 0 && f.check(*f.value) != nil {
			*f.value = nil
		}
	}
	return k
}

func shaped[T any](b []byte) error {
	var v T
	return json.Unmarshal(b, &v)
}

// shapedChecks is shaped for a map, whose keys the decoder's errors leave out.
func shapedChecks(b []byte) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(b, &all); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := shaped[check](all[name]); err != nil {
			return below(name, err)
		}
	}
	return nil
}

// misshapen is a value that has not its shape.
type misshapen struct {
	path string
	err  error
}

func (m misshapen) Error() string { return m.path + ": " + m.err.Error() }

func (m misshapen) invalid() error {
	if e, ok := errors.AsType[*json.UnmarshalTypeError](m.err); ok {
		return &bourse.Error{Code: bourse.CodeInvalid, Message: "invalid " + m.path + ": a JSON " + e.Value + " does not fit", Err: m.err}
	}
	return bourse.Errorf(bourse.CodeInvalid, "invalid %s: %w", m.path, m.err)
}

// below says where below path the value is that err is about.
func below(path string, err error) misshapen {
	switch e := err.(type) { //nolint:errorlint // both were just made, by us and by the decoder
	case misshapen:
		return misshapen{path + "." + e.path, e.err}
	case *json.UnmarshalTypeError:
		if field := strings.ReplaceAll(e.Field, "program.", ""); field != "" { // embedded
			path += "." + field
		}
	}
	return misshapen{path, err}
}
