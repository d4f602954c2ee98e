// Package api has the messages between a symbol server and its clients, as JSON. Binary ones
// are in the package columns beside it.
package api

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"hallmark/buildid"
)

// Limits of requests.
const (
	MaxPlan      = 1000     // files in a plan
	MaxChunk     = 16 << 20 // bytes of a part of an upload
	MaxAddresses = 1 << 20  // addresses in a request for symbols
)

// An Error is the body of an answer that is no success.
type Error struct {
	Error  string `json:"error"`
	Status int    `json:"status"`
}

// A Plan says which files a client could send. It is the request of POST /v1/plan.
type Plan struct {
	Files []PlanFile `json:"files"`
}

// A PlanFile is a file that a client has, or of which it knows the identity alone and wants to know whether the
// server has one.
type PlanFile struct {
	ID     buildid.ID `json:"id"`
	SHA256 string     `json:"sha256"` // of its bytes, in hexadecimal; "" where the client does not have it
	Size   int64      `json:"size"`
	// Where the file comes from, which the server notes of one that it has: see server/packages.
	Name    string `json:"name,omitempty"`
	Archive string `json:"archive,omitempty"`
	Package string `json:"package,omitempty"`
	Build   string `json:"build,omitempty"`
}

// Actions of a plan.
const (
	Upload = "upload" // the server wants the file
	Skip   = "skip"   // the server has it
	Refuse = "error"  // the server does not take it
)

// A Planned says what to do with the files of a Plan, in its order.
type Planned struct {
	Files []PlannedFile `json:"files"`
}

// A PlannedFile says what to do with a file.
type PlannedFile struct {
	Action string `json:"action"`
	// Have is how many bytes from its start the server has of an upload that was cut short.
	Have    int64  `json:"have,omitempty"`
	Message string `json:"message,omitempty"` // why the file is refused
	// Of a file that the server has: as in Stored.
	Disputed int  `json:"disputed,omitempty"`
	Served   bool `json:"served,omitempty"`
	Alone    bool `json:"alone,omitempty"`
	Nameless bool `json:"nameless,omitempty"`
}

// A Stored says what became of a file that was sent.
type Stored struct {
	ID       buildid.ID `json:"id"`
	SHA256   string     `json:"sha256"`
	New      bool       `json:"new"`
	Disputed int        `json:"disputed,omitempty"` // files of other code that have the same identity
	Served   bool       `json:"served"`             // it is the executable or the debug file that is served
	Alone    bool       `json:"alone,omitempty"`    // it is the debug file that is served, and there is no executable
	Nameless bool       `json:"nameless,omitempty"` // it is alone, and names nothing: agents sent it, or files of other code have its identity
}

// An Identity is what a server knows of an identity: the answer to GET /v1/identities/ID.
type Identity struct {
	ID       buildid.ID `json:"id"`
	Symbols  string     `json:"symbols"` // the best that is known: none, exported, functions, lines
	Pinned   bool       `json:"pinned,omitempty"`
	Used     string     `json:"used,omitempty"` // day on which it was asked for last
	Asked    *Asked     `json:"asked,omitempty"`
	Disputed bool       `json:"disputed"` // files of different code have this identity
	Files    []File     `json:"files"`
	Sections []Section  `json:"sections,omitempty"` // of the files that are served, where they are asked for
}

// Asked is how often this server was asked for an identity, since it started.
type Asked struct {
	Count int64     `json:"count"`
	Last  time.Time `json:"last"`
	By    []Asker   `json:"by,omitempty"` // for the role admin alone
}

// An Asker is a token that asked.
type Asker struct {
	Who   string `json:"who"` // name of the token
	Count int64  `json:"count"`
}

// A File is one of the files of an identity.
type File struct {
	SHA256     string   `json:"sha256"`
	Size       int64    `json:"size"`
	Executable bool     `json:"executable"`
	Debug      bool     `json:"debug"`
	Symbols    string   `json:"symbols"`
	Serves     []string `json:"serves,omitempty"` // "executable", "debuginfo"
	Disputed   bool     `json:"disputed,omitempty"`
	Origins    []Origin `json:"origins"`
}

// An Origin says where a file came from.
type Origin struct {
	Trust   string    `json:"trust"`
	Via     string    `json:"via"`
	Who     string    `json:"who,omitempty"`
	Path    string    `json:"path,omitempty"`
	Archive string    `json:"archive,omitempty"`
	Package string    `json:"package,omitempty"`
	Time    time.Time `json:"time"`
}

// A SymbolizeRequest asks for functions and lines: the body of POST /v1/symbolize.
type SymbolizeRequest struct {
	Files []SymbolizeFile `json:"files"`
	// WaitSeconds is how long to wait for indexes that are being made, 30 s when 0.
	WaitSeconds float64 `json:"wait_seconds,omitempty"`
	// Chains has the answer name each chain of calls of a file once: many addresses have few.
	Chains bool `json:"chains,omitempty"`
}

// A SymbolizeFile is what is asked of one file.
type SymbolizeFile struct {
	ID        string    `json:"id"`
	Virtual   bool      `json:"virtual,omitempty"` // virtual addresses; otherwise file offsets
	Addresses []Address `json:"addresses"`
}

// An Address is a number in JSON, or a text with a number in it: "0x1234".
type Address uint64

// UnmarshalJSON reads either form.
func (a *Address) UnmarshalJSON(b []byte) error {
	text := strings.Trim(string(b), `"`)
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		return fmt.Errorf("%.40q is no address: it is a number, or a text with one, as \"0x1234\"", text)
	}
	*a = Address(n)
	return nil
}

// A SymbolizeAnswer has a file for each of the request, in its order.
type SymbolizeAnswer struct {
	Files []SymbolizedFile `json:"files"`
}

// A SymbolizedFile has a result for each address, in the order of the request.
type SymbolizedFile struct {
	ID      string       `json:"id"`
	Why     string       `json:"why,omitempty"`  // "no file", "short", "pending", "poor" or "damaged": there are no results
	Code    string       `json:"code,omitempty"` // hash of the code of the file that answered
	Results []Symbolized `json:"results,omitempty"`
	// Chains are the different results of a file, and Numbers has for each address, in the order of the request, the
	// number of its own in Chains, where SymbolizeRequest.Chains wants them. Results is empty then.
	Chains  []Symbolized `json:"chains,omitempty"`
	Numbers []int        `json:"numbers,omitempty"`
}

// Symbolized are the functions at an address, innermost first, or the code of the reason why
// there are none.
type Symbolized struct {
	Frames []Frame `json:"frames,omitempty"`
	Source string  `json:"source,omitempty"` // "dwarf", "symtab" and so on
	Reason string  `json:"reason,omitempty"`
}

// A Frame is one function at an address.
type Frame struct {
	Function string `json:"function,omitempty"`
	Linkage  string `json:"linkage,omitempty"` // where it differs from the function
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Start    int    `json:"start,omitempty"`
	Symbol   string `json:"symbol,omitempty"`
	Language string `json:"language,omitempty"`
	Inlined  bool   `json:"inlined,omitempty"`
}

// A Profile is a profile that a server keeps as it came.
type Profile struct {
	ID       string    `json:"id"` // SHA-256 of its bytes
	URL      string    `json:"url"`
	Time     time.Time `json:"time"` // when it came first
	Role     string    `json:"role"` // of the token by which it came first
	Kind     string    `json:"kind"`
	Title    string    `json:"title"`
	Size     int64     `json:"size"` // bytes
	Samples  int64     `json:"samples"`
	Binaries int64     `json:"binaries"`
}

// A KeptProfile is the answer to POST /v1/profiles.
type KeptProfile struct {
	Profile
	New bool `json:"new"` // false where the server had these bytes
}

// Profiles is a page of the list of profiles, newest first: the answer to GET /v1/profiles.
type Profiles struct {
	Profiles []Profile `json:"profiles"`
	Total    int       `json:"total"`          // in the whole list
	Next     string    `json:"next,omitempty"` // the parameter "after" of the next page
}

// A SearchAnswer is a page of what was found: the answer to GET /v1/search.
type SearchAnswer struct {
	Results  []SearchResult `json:"results"`
	Total    int            `json:"total"`
	Complete bool           `json:"complete"` // the server knows all files of its store by now
	// Scanned is how many identities the directories of --scan have, of which only those are found that somebody has
	// asked for by their identity.
	Scanned int64 `json:"scanned,omitempty"`
}

// A SearchResult is an identity that was found.
type SearchResult struct {
	ID      buildid.ID `json:"id"`
	Names   []string   `json:"names"` // some of the paths
	Symbols string     `json:"symbols"`
	Files   int        `json:"files"`
}

// A FunctionsAnswer is a page of functions that were found: the answer to GET /v1/functions.
type FunctionsAnswer struct {
	Functions []FoundFunction `json:"functions"`
	Searched  int             `json:"searched"`       // binaries
	Cut       int             `json:"cut"`            // binaries that have more functions than are listed
	NotHere   int             `json:"not_here"`       // binaries with symbols whose index is not on the disk of this server
	Next      string          `json:"next,omitempty"` // where the next page begins; "" where all is searched
	Complete  bool            `json:"complete"`       // the server knows all files of its store by now
}

// A FoundFunction is a function of a binary.
type FoundFunction struct {
	ID       buildid.ID `json:"id"`
	Binary   string     `json:"binary,omitempty"` // one of its paths
	Function string     `json:"function"`
	Linkage  string     `json:"linkage,omitempty"` // where it differs from the function
	File     string     `json:"source_file,omitempty"`
	Line     int        `json:"line,omitempty"`    // where it starts
	Virtual  uint64     `json:"virtual"`           // lowest virtual address of its code in the file
	Inlined  bool       `json:"inlined,omitempty"` // all its code is inlined into others
}

// A Section is one of a file that is served.
type Section struct {
	Of    string `json:"of"` // "executable", "debuginfo"
	Name  string `json:"name"`
	Size  uint64 `json:"size"`  // bytes, in memory where the file has none
	Bytes bool   `json:"bytes"` // the file has its bytes
}

// A MissingList is a page of identities that were asked for and are not there: the answer to GET /v1/missing.
type MissingList struct {
	Missing []Missing `json:"missing"`
	Total   int       `json:"total"`
	Since   time.Time `json:"since"` // when the server began to count
}

// A Missing is an identity that was asked for and is not there.
type Missing struct {
	ID    buildid.ID `json:"id"`
	Name  string     `json:"name,omitempty"` // a path of the file in a profile
	Count int64      `json:"count"`          // requests and profiles
	Last  time.Time  `json:"last"`
}

// Health is how a server is: the answer to GET /v1/health.
type Health struct {
	Started           time.Time `json:"started"`
	StoreAnswers      bool      `json:"store_answers"`
	Identities        int64     `json:"identities"`
	Complete          bool      `json:"complete"` // all manifests of the store have been read
	Profiles          int       `json:"profiles"`
	ProfileBytes      int64     `json:"profile_bytes"` // in the store
	Open              int64     `json:"open_profiles"`
	ScannedPackages   int64     `json:"scanned_packages"` // and archives, also those that cannot be read; not plain ELF files
	ScannedIdentities int64     `json:"scanned_identities"`
	Broken            int       `json:"broken"`        // objects of the store whose bytes are lost
	DamagedLists      int64     `json:"damaged_lists"` // manifests and the like that are damaged
	ReadOnly          bool      `json:"read_only"`
	Symbolizes        bool      `json:"symbolizes"`
	Forwards          bool      `json:"forwards"`
	// Upstream are the servers that are asked for what the store does not have.
	Upstream []Upstream `json:"upstream,omitempty"`
	// Connections and Requests are how many there are now, but for those of the state of the server.
	Connections int64 `json:"connections"`
	Requests    int64 `json:"requests"`
	// Pools are what clients share: how much there is, how much is taken, and by how many clients.
	Pools []Pool `json:"pools,omitempty"`
	// MemoryBytes are those of the process, and StoreBytes those of files and indexes when this server collected
	// garbage last, 0 if it never did. Version is that of the server.
	MemoryBytes int64  `json:"memory_bytes"`
	StoreBytes  int64  `json:"store_bytes"`
	Version     string `json:"version,omitempty"`
	// Refused is how many requests and connections the server did not want since its start, by reason.
	Refused map[string]int64 `json:"refused,omitempty"`
	Tokens  bool             `json:"tokens"`        // the server wants tokens
	Who     string           `json:"who,omitempty"` // name of the token that asks

	BrokenFiles []BrokenFile `json:"broken_files,omitempty"` // some of them
}

// An Upstream is a server that this one asks.
type Upstream struct {
	URL     string `json:"url"`     // without credentials
	Resting bool   `json:"resting"` // it failed not long ago, and is not asked for a while
}

// A Pool is what clients share: "requests", "strangers" (requests without a token), "watchers" (requests for the state of the
// server), "heavy" (requests that cost much), "files" (uploads), "questions" and "downloads" of pages, and the bytes of "bodies",
// "profiles" and "answers" of pages.
type Pool struct {
	Of      string `json:"of"`
	Size    int64  `json:"size"`
	InUse   int64  `json:"in_use"`
	Clients int    `json:"clients"`
}

// BrokenFile is one whose bytes the store has lost: whoever has it should push it again.
type BrokenFile struct {
	SHA256  string    `json:"sha256"`  // of its bytes; with a suffix where the store has them a second time
	Missing bool      `json:"missing"` // they are not there, else damaged
	Found   time.Time `json:"found"`
	// Names of the file, "" where the store knows none.
	ID      string `json:"build_id,omitempty"`
	Path    string `json:"path,omitempty"`
	Package string `json:"package,omitempty"`
}
