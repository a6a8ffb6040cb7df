"""Transcripts of agents: the prompts, tool calls and answers of a session, whichever agent wrote the file."""

from butlers.transcripts.formats import FORMATS, Format
from butlers.transcripts.reading import read_entries, read_transcript
from butlers.transcripts.transcript import Transcript, Turn

__all__ = ["FORMATS", "Format", "Transcript", "Turn", "read_entries", "read_transcript"]
