package query

import (
	"strings"
	"sync"
	"unicode/utf8"

	"zombiezen.com/go/sqlite"
)

// functions lists the functions that a statement may call. It excludes functions that access more
// than the database (load_extension, sqlite_log), and internal functions of modules that are not
// used here. It also excludes functions that take quadratic time (json_patch, unhex), because a
// function cannot be interrupted.
//
// Source: https://sqlite.org/lang_corefunc.html, lang_aggfunc.html, windowfunctions.html, lang_datefunc.html,
// lang_mathfunc.html, json1.html.
var functions = wordSet(`
	abs changes char coalesce concat concat_ws format glob hex if ifnull iif instr length like likelihood likely lower ltrim
	max min nullif octet_length printf quote random randomblob replace round rtrim sign soundex sqlite_version substr
	substring trim typeof unicode unistr unlikely upper zeroblob
	avg count group_concat string_agg sum total
	cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank row_number
	current_date current_time current_timestamp date datetime julianday strftime time timediff unixepoch
	acos acosh asin asinh atan atan2 atanh ceil ceiling cos cosh degrees exp floor ln log log10 log2 mod pi pow power
	radians sin sinh sqrt tan tanh trunc
	-> ->> json json_array json_array_insert json_array_length json_error_position json_extract json_group_array
	json_group_object json_insert json_object json_pretty json_quote json_remove json_replace json_set json_type json_valid
	jsonb jsonb_array jsonb_array_insert jsonb_extract jsonb_group_array jsonb_group_object jsonb_insert jsonb_object
	jsonb_remove jsonb_replace jsonb_set subtype`)

// replaceFunctions replaces the functions instr, replace, trim, ltrim and rtrim of a connection.
// The running time of SQLite's own versions is proportional to the product of their arguments'
// lengths: they take minutes for two strings of a megabyte each. The replacements return the same
// results in linear time.
func replaceFunctions(conn *sqlite.Conn) error {
	scalar := func(name string, args int, call func(args []sqlite.Value) (sqlite.Value, error)) error {
		return conn.CreateFunction(name, &sqlite.FunctionImpl{
			NArgs: args, Deterministic: true, AllowIndirect: true,
			Scalar: func(_ sqlite.Context, args []sqlite.Value) (sqlite.Value, error) {
				for _, a := range args[:min(2, len(args))] {
					if a.Type() == sqlite.TypeNull {
						return sqlite.Value{}, nil
					}
				}
				return call(args)
			},
		})
	}
	if err := scalar("instr", 2, instr); err != nil {
		return err
	}
	if err := scalar("replace", 3, replace); err != nil {
		return err
	}
	for name, cut := range map[string]func(s string, f func(rune) bool) string{
		"trim": strings.TrimFunc, "ltrim": strings.TrimLeftFunc, "rtrim": strings.TrimRightFunc,
	} {
		for args := 1; args <= 2; args++ {
			if err := scalar(name, args, trimmer(cut)); err != nil {
				return err
			}
		}
	}
	return nil
}

// instr returns the position of args[1] in args[0], counted from 1, or 0 if args[0] does not contain args[1].
// The position is in bytes if both arguments are blobs; otherwise, it is in characters.
func instr(args []sqlite.Value) (sqlite.Value, error) {
	if args[0].Type() == sqlite.TypeBlob && args[1].Type() == sqlite.TypeBlob {
		return sqlite.IntegerValue(int64(strings.Index(string(args[0].Blob()), string(args[1].Blob())) + 1)), nil
	}
	in := args[0].Text()
	at := strings.Index(in, args[1].Text())
	if at < 0 {
		return sqlite.IntegerValue(0), nil
	}
	return sqlite.IntegerValue(int64(utf8.RuneCountInString(in[:at]) + 1)), nil
}

// replace returns args[0] with all occurrences of args[1] replaced by args[2].
func replace(args []sqlite.Value) (sqlite.Value, error) {
	in, old, with := args[0].Text(), args[1].Text(), args[2].Text()
	if old == "" {
		return sqlite.TextValue(in), nil
	}
	if args[2].Type() == sqlite.TypeNull {
		return sqlite.Value{}, nil
	}
	if len(in)+strings.Count(in, old)*(len(with)-len(old)) > maxLength {
		return tooLong(), nil
	}
	return sqlite.TextValue(strings.ReplaceAll(in, old, with)), nil
}

// tooLong returns a value that SQLite rejects because of its length. It is used instead of an
// error, because the binding (v1.4.2) would turn an error's text into the function's result. The
// value is created only when it is first needed, to save memory in processes that never run
// queries.
var tooLong = sync.OnceValue(func() sqlite.Value { return sqlite.TextValue(strings.Repeat("x", maxLength+1)) })

// trimmer returns a function that trims args[0], at one or both ends as determined by cut. It
// removes the characters in args[1] or, if there is no args[1], spaces.
func trimmer(cut func(string, func(rune) bool) string) func([]sqlite.Value) (sqlite.Value, error) {
	return func(args []sqlite.Value) (sqlite.Value, error) {
		set := map[rune]bool{' ': true}
		if len(args) == 2 {
			clear(set)
			for _, r := range args[1].Text() {
				set[r] = true
			}
		}
		return sqlite.TextValue(cut(args[0].Text(), func(r rune) bool { return set[r] })), nil
	}
}
