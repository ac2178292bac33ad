package endpoint

import "net/http"

// About is what a route reads and writes, for the description of the API: values
// of the types of its bodies.
type About struct {
	Body     any      // of JSON that it reads; nil: it reads none
	Optional bool     // an empty body is one, too
	Bodiless bool     // it reads no body, though its method has one
	Reply    any      // of JSON that it writes; nil: none
	Failure  any      // of JSON that it writes instead of an error's body, where that is not its own
	Lines    bool     // it writes any number of them, each on a line
	Media    string   // of a reply that is not JSON
	Status   int      // of its reply; default 200, and 204 without any
	Query    []string // names of parameters
}

// Reads says what the body is.
func (rt Route) Reads(body any) Route { rt.About.Body = body; return rt }

// MayRead says what the body is if there is one.
func (rt Route) MayRead(body any) Route { rt.About.Optional = true; return rt.Reads(body) }

// ReadsNothing says that there is no body, though the method has one.
func (rt Route) ReadsNothing() Route { rt.About.Bodiless = true; return rt }

// Writes says what a good reply is.
func (rt Route) Writes(reply any) Route { rt.About.Reply = reply; return rt }

// Makes says what the reply is once something has been made.
func (rt Route) Makes(reply any) Route { return rt.Writes(reply).Answers(http.StatusCreated) }

// Answers says which status a good reply has.
func (rt Route) Answers(status int) Route { rt.About.Status = status; return rt }

// Fails says what the reply is when what was asked for failed, and not the request.
func (rt Route) Fails(reply any) Route { rt.About.Failure = reply; return rt }

// Streams says what the lines of a good reply are.
func (rt Route) Streams(line any) Route { rt.About.Lines = true; return rt.Writes(line) }

// Sends says of which media type a good reply is that is not JSON.
func (rt Route) Sends(media string) Route { rt.About.Media = media; return rt }

// Asks names the parameters of the query.
func (rt Route) Asks(names ...string) Route { rt.About.Query = names; return rt }
