package lookupprint

import "hallmark/symbol"

// A FrameRecord is a frame as verbs print it in JSON.
type FrameRecord struct {
	Function string `json:"function"`
	Linkage  string `json:"linkage,omitempty"` // where it differs from function
	File     string `json:"source_file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Column   int    `json:"column,omitempty"`
	Symbol   string `json:"symbol,omitempty"` // ELF symbol, where it has another name
	Inlined  bool   `json:"inlined,omitempty"`
}

// FrameRecords returns frames as verbs print them in JSON.
func FrameRecords(frames []symbol.Frame) []FrameRecord {
	records := make([]FrameRecord, len(frames))
	for i, f := range frames {
		records[i] = FrameRecord{
			Function: f.Func, File: f.File, Line: f.Line, Column: f.Column, Symbol: f.Symbol, Inlined: f.Inlined,
		}
		if f.Linkage != f.Func {
			records[i].Linkage = f.Linkage
		}
	}
	return records
}
