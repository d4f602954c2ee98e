package firefox

// version is that of the processed format, whose changes are listed in
// docs-developer/CHANGELOG-formats.md of github.com/firefox-devtools/profiler. Later
// profilers upgrade what they load.
const version = 48

// The types below are those of src/types/profile.js of the profiler with the same
// names, without those that are written as they come (writer). A table is a list for each
// column, all of the same length.
type (
	meta struct {
		Interval                   float64     `json:"interval"`  // ms
		StartTime                  float64     `json:"startTime"` // ms since 1970
		ProcessType                int         `json:"processType"`
		Product                    string      `json:"product"`
		Importer                   string      `json:"importedFrom"`
		Stackwalk                  int         `json:"stackwalk"`
		Debug                      bool        `json:"debug"`
		Version                    int         `json:"version"`
		PreprocessedProfileVersion int         `json:"preprocessedProfileVersion"`
		Symbolicated               bool        `json:"symbolicated"`
		UsesOnlyOneStackType       bool        `json:"usesOnlyOneStackType"`
		NotSearchfox               bool        `json:"sourceCodeIsNotOnSearchfox"`
		Categories                 []category  `json:"categories"`
		MarkerSchema               []any       `json:"markerSchema"`
		Extensions                 extensions  `json:"extensions"`
		SampleUnits                sampleUnits `json:"sampleUnits"`
	}
	category struct {
		Name          string   `json:"name"`
		Color         string   `json:"color"`
		Subcategories []string `json:"subcategories"`
	}
	extensions struct {
		ID      []string `json:"id"`
		Name    []string `json:"name"`
		BaseURL []string `json:"baseURL"`
		Length  int      `json:"length"`
	}
	sampleUnits struct {
		Time           string `json:"time"`
		EventDelay     string `json:"eventDelay"`
		ThreadCPUDelta string `json:"threadCPUDelta"`
	}
	lib struct {
		Arch       string  `json:"arch"`
		Name       string  `json:"name"`
		Path       string  `json:"path"`
		DebugName  string  `json:"debugName"`
		DebugPath  string  `json:"debugPath"`
		BreakpadID string  `json:"breakpadId"`
		CodeID     *string `json:"codeId"`
	}
	frameTable struct {
		Length         int      `json:"length"`
		Address        []int64  `json:"address"` // -1 for none
		InlineDepth    []int    `json:"inlineDepth"`
		Category       []int    `json:"category"`
		Subcategory    []int    `json:"subcategory"`
		Func           []int    `json:"func"`
		NativeSymbol   []*int   `json:"nativeSymbol"`
		InnerWindowID  []int    `json:"innerWindowID"`
		Implementation []*int   `json:"implementation"`
		Line           []*int64 `json:"line"`
		Column         []*int64 `json:"column"`
	}
	funcTable struct {
		Length        int      `json:"length"`
		Name          []int    `json:"name"`
		IsJS          []bool   `json:"isJS"`
		RelevantForJS []bool   `json:"relevantForJS"`
		Resource      []int    `json:"resource"` // -1 for none
		FileName      []*int   `json:"fileName"`
		LineNumber    []*int64 `json:"lineNumber"`
		ColumnNumber  []*int64 `json:"columnNumber"`
	}
	resourceTable struct {
		Length int    `json:"length"`
		Lib    []*int `json:"lib"`
		Name   []int  `json:"name"`
		Host   []*int `json:"host"`
		Type   []int  `json:"type"`
	}
)

// stackTable is RawStackTable. It may have millions of entries, and is written as they come.
type stackTable struct {
	frame, prefix []int32 // prefix is the caller, which stands before, -1 for none
}

// resourceLib is the type of a resource that is a library, resourceTypes.library of
// src/profile-logic/data-structures.js.
const resourceLib = 1

// Indexes of categories. The profiler needs a grey one.
const (
	other = iota
	user
	kernel
)

var categories = []category{
	{"Other", "grey", []string{"Other"}},
	{"User", "yellow", []string{"Other"}},
	{"Kernel", "orange", []string{"Other"}},
}
